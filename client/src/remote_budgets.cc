// The calls of RemoteOperator about budgets and their applications to what is stored.
#include <algorithm>
#include <optional>
#include <utility>

#include "client/src/remote_operator.h"

namespace precis {
namespace {

// A session's budget is where the session is.
Target owner_of_scope(const msg::BudgetScope& scope) {
  if (scope.session.empty()) return AnyNode{};
  return OwnerOfSession{scope.session};
}

}  // namespace

Result<msg::Budgets> RemoteOperator::budgets(std::optional<Digest> model,
                                             const std::string& session) {
  return call<msg::Budgets>(msg::ShowBudget{{model, session}}, Patience::kOneTimeout,
                            owner_of_scope({model, session}));
}
Result<msg::Budgets> RemoteOperator::set_budget(const msg::SetBudget& change) {
  Retry retry = begin(change);
  // A session is at one node, with all that it stores.
  if (change.apply_to_stored && change.scope.session.empty()) {
    PRECIS_ASSIGN(const bool clustered, is_clustered(retry));
    if (clustered) return apply_budget(change);
  }
  auto told = set_at(owner_of_scope(change.scope), retry, change);
  if (told.ok() && told->application != 0) {
    PRECIS_ASSIGN(told->application, joined_number(told->application));
  }
  return told;
}
Result<msg::Budgets> RemoteOperator::apply_budget(const msg::SetBudget& change) {
  Retry retry = begin(change);
  PRECIS_ASSIGN(const auto nodes, all_applications(retry));
  const bool runs = std::ranges::any_of(nodes, [](const NodeApplication& node) {
    return node.state.state == "running" && !node.state.dry_run;
  });
  if (runs) {
    return Status::conflict("an earlier change is being applied: wait for its end, or cancel it");
  }
  const auto partly = [&](const Status& failed) {
    return change.dry_run
               ? failed
               : failed.with_context("the budget is set, but not all nodes trim what they store");
  };
  msg::SetBudget request = change;
  std::optional<msg::Budgets> told;
  Status not_found = Status::unavailable("no node of the cluster answers"), failed;
  for (const NodeApplication& node : nodes) {
    auto answer = set_at(NodeAt{node.address}, retry, request);
    const bool is_there = answer.status().code() != StatusCode::kNotFound;  // else it has left
    if (!answer.ok()) {
      if (!told && is_there) return answer.status();
      (is_there ? failed : not_found) = answer.status();
    } else if (told) {
      told->application += answer->application;
      if (told->next_put && told->next_put->segment.is_null()) told->next_put = answer->next_put;
    } else {
      told = std::move(*answer);
      if (change.dry_run) continue;
      // The others set the same budget again, which changes nothing, unless there is a later one.
      const auto begun =
          nodes_->call<msg::BudgetApplication>(retry, NodeAt{node.address}, msg::ShowApplication{});
      if (!begun.ok()) return partly(begun.status());
      if (begun->number != told->application) {  // then it is of another change
        return partly(Status::conflict("another change of budgets came just after it"));
      }
      request.if_revision = begun->revision;
    }
  }
  if (!told) return not_found;
  if (!failed.ok()) return partly(failed);
  return std::move(*told);
}
Result<msg::Budgets> RemoteOperator::set_at(const Target& node, Retry& retry,
                                            const msg::SetBudget& change) {
  retry.went_well();
  if (!change.dry_run) {
    return nodes_->call<msg::Budgets>(retry, node, change, Patience::kOneTimeout,
                                      Nodes::Repeat::kUnsafe);
  }
  return nodes_->call<msg::Budgets>(retry, node, change, Patience::kWhileAlive);
}

Result<msg::BudgetRevisions> RemoteOperator::budget_revisions(
    const msg::ListBudgetRevisions& which) {
  return call<msg::BudgetRevisions>(which);
}
Result<msg::BudgetChanges> RemoteOperator::compare_budgets(const msg::CompareBudgets& which) {
  return call<msg::BudgetChanges>(which);
}
Result<msg::BudgetRevision> RemoteOperator::roll_back_budget(const msg::RollBackBudget& change) {
  auto made = call_once<msg::BudgetRevision>(change);
  if (made.ok() && made->application != 0) {
    PRECIS_ASSIGN(made->application, joined_number(made->application));
  }
  return made;
}
Result<bool> RemoteOperator::is_clustered(Retry& retry) {
  PRECIS_ASSIGN(const auto targets, nodes_->all(retry));
  retry.went_well();
  return targets.empty() || !std::holds_alternative<AnyNode>(targets.front());
}
Result<std::vector<NodeApplication>> RemoteOperator::all_applications(Retry& retry) {
  PRECIS_ASSIGN(const auto targets, nodes_->all(retry));
  std::vector<NodeApplication> nodes;
  for (const Target& node : targets) {
    retry.went_well();
    auto state = nodes_->call<msg::BudgetApplication>(retry, node, msg::ShowApplication{});
    if (state.status().code() == StatusCode::kNotFound) continue;  // the node has left
    PRECIS_TRY(state.status());
    const auto* const at = std::get_if<NodeAt>(&node);
    nodes.push_back({at == nullptr ? "" : at->address, std::move(*state)});
  }
  retry.went_well();
  return nodes;
}
Result<std::uint64_t> RemoteOperator::joined_number(std::uint64_t number) {
  Retry retry = begin("application");
  PRECIS_ASSIGN(const bool clustered, is_clustered(retry));
  if (!clustered) return number;
  const auto nodes = all_applications(retry);
  if (nodes.ok()) return joined(*nodes).number;
  return nodes.status().with_context(
      "the budget is changed, and the node that was asked trims what "
      "it stores, but not all nodes say what they do");
}
Result<msg::BudgetApplication> RemoteOperator::application() {
  Retry retry = begin("application");
  PRECIS_ASSIGN(const auto nodes, all_applications(retry));
  return joined(nodes);
}
Result<msg::BudgetApplication> RemoteOperator::cancel_application(std::uint64_t number) {
  Retry retry = begin("cancel_application");
  PRECIS_ASSIGN(const bool clustered, is_clustered(retry));
  if (!clustered) return call<msg::BudgetApplication>(msg::CancelApplication{number});
  PRECIS_ASSIGN(auto nodes, all_applications(retry));
  const msg::BudgetApplication now = joined(nodes);
  if (number != 0 && now.number != number && now.state == "running") {
    return Status::conflict("application " + std::to_string(now.number) + " runs, not " +
                            std::to_string(number));
  }
  Status first;  // a node that does not answer does not keep the others running
  for (NodeApplication& node : nodes) {
    if (node.state.state != "running") continue;
    retry.went_well();
    auto ended = nodes_->call<msg::BudgetApplication>(retry, NodeAt{node.address},
                                                      msg::CancelApplication{node.state.number});
    if (ended.ok()) {
      node.state = std::move(*ended);
    } else if (first.ok()) {
      first = ended.status().with_context("the application at " + node.address + " may go on");
    }
  }
  if (!first.ok()) return first;
  return joined(nodes);
}

}  // namespace precis
