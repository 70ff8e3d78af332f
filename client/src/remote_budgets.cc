// The calls of RemoteOperator about budgets and their applications to what is stored.
#include <string>
#include <utility>
#include <variant>

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
  const Target node = owner_of_scope(change.scope);
  if (!change.dry_run) {
    if (change.apply_to_stored) PRECIS_TRY(check_none_trims());
    return call_once<msg::Budgets>(change, node);
  }
  auto told = call<msg::Budgets>(change, Patience::kWhileAlive, node);
  // The node that was asked may store nothing that tells what the next put would keep.
  const bool is_unknown = told.ok() && told->next_put && told->next_put->segment.is_null();
  if (!is_unknown || !change.scope.session.empty()) return told;
  msg::SetBudget again = change;
  again.apply_to_stored = false;
  Retry retry = begin(change);
  PRECIS_ASSIGN(const auto targets, nodes_->all(retry));
  for (const Target& other : targets) {
    if (std::holds_alternative<AnyNode>(other)) break;
    retry.went_well();
    const auto same = nodes_->call<msg::Budgets>(retry, other, again, Patience::kWhileAlive);
    if (!same.ok() || !same->next_put || same->next_put->segment.is_null()) continue;
    told->next_put = same->next_put;
    break;
  }
  return told;
}

Result<msg::BudgetRevisions> RemoteOperator::budget_revisions(
    const msg::ListBudgetRevisions& which) {
  return call<msg::BudgetRevisions>(which);
}
Result<msg::BudgetChanges> RemoteOperator::compare_budgets(const msg::CompareBudgets& which) {
  return call<msg::BudgetChanges>(which);
}
Result<msg::BudgetRevision> RemoteOperator::roll_back_budget(const msg::RollBackBudget& change) {
  if (change.apply_to_stored && !change.dry_run) PRECIS_TRY(check_none_trims());
  return call_once<msg::BudgetRevision>(change);
}
// The node that is asked looks only at itself.
Status RemoteOperator::check_none_trims() {
  Retry retry = begin("application");
  PRECIS_ASSIGN(const auto nodes, all_applications(retry));
  for (const NodeApplication& node : nodes) {
    if (node.address.empty() || node.state.state != "running" || node.state.dry_run) continue;
    return Status::conflict(
        "application " + std::to_string(node.state.number) +
        " of an earlier change still runs at " + node.address +
        "; wait for its end, or cancel it (precisctl budget application --cancel)");
  }
  return {};
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
Result<msg::BudgetApplication> RemoteOperator::application() {
  Retry retry = begin("application");
  PRECIS_ASSIGN(const auto nodes, all_applications(retry));
  return joined(nodes);
}
Result<msg::BudgetApplication> RemoteOperator::cancel_application(std::uint64_t number) {
  const msg::CancelApplication request{number};
  Retry retry = begin(request);
  PRECIS_ASSIGN(auto ended, nodes_->call<msg::BudgetApplication>(retry, AnyNode{}, request));
  PRECIS_ASSIGN(const auto targets, nodes_->all(retry));
  const bool is_alone = targets.size() == 1 && std::holds_alternative<AnyNode>(targets.front());
  return is_alone ? Result(std::move(ended)) : application();
}

}  // namespace precis
