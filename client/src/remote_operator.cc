#include "client/src/remote_operator.h"

#include <functional>
#include <utility>
#include <variant>

namespace precis {
namespace {

// A session's budget is where the session is.
Target owner_of_scope(const msg::BudgetScope& scope) {
  if (scope.session.empty()) return AnyNode{};
  return OwnerOfSession{scope.session};
}

}  // namespace

Result<std::vector<msg::SegmentInfo>> RemoteOperator::segments_of(Retry& retry, const Target& node,
                                                                  std::optional<Digest> model,
                                                                  std::uint32_t limit) {
  std::vector<msg::SegmentInfo> rows;
  msg::ListPrefixes request{model};
  while (rows.size() < limit) {
    const std::size_t wanted = limit - rows.size();
    request.limit = static_cast<std::uint32_t>(std::min<std::size_t>(wanted, request.limit));
    retry.went_well();
    PRECIS_ASSIGN(auto page, nodes_->call<msg::Segments>(retry, node, request));
    std::ranges::move(page.rows, std::back_inserter(rows));
    if (page.next.empty()) break;
    request.after = std::move(page.next);
  }
  return rows;
}

Result<std::vector<msg::SegmentInfo>> RemoteOperator::segments(std::optional<Digest> model,
                                                               std::uint32_t limit) {
  Retry retry = begin("segments");
  PRECIS_ASSIGN(const auto targets, nodes_->all(retry));
  std::vector<msg::SegmentInfo> rows;
  for (const Target& node : targets) {
    auto more = segments_of(retry, node, model, limit);
    if (more.status().code() == StatusCode::kNotFound) continue;  // the node has left
    PRECIS_TRY(more.status());
    std::ranges::move(*more, std::back_inserter(rows));
  }
  if (targets.size() == 1) return rows;
  std::ranges::stable_sort(rows, std::greater{}, &msg::SegmentInfo::created_unix_ms);
  if (rows.size() > limit) rows.resize(limit);
  return rows;
}

// In a cluster, the list is that of one node after the other, by address, and a position in it is
// the address, a space, and the position in that node's list.
Result<msg::Segments> RemoteOperator::segments_page(const msg::ListPrefixes& request) {
  Retry retry = begin(request);
  PRECIS_ASSIGN(auto targets, nodes_->all(retry));
  if (std::holds_alternative<AnyNode>(targets.front())) {
    return nodes_->call<msg::Segments>(retry, AnyNode{}, request);
  }
  std::vector<std::string> addresses;
  for (const Target& node : targets) addresses.push_back(std::get<NodeAt>(node).address);
  std::ranges::sort(addresses);
  const auto space = request.after.find(' ');
  auto node = std::ranges::lower_bound(addresses, request.after.substr(0, space));
  if (node == addresses.end()) return msg::Segments{};
  msg::ListPrefixes of_node = request;
  // If the node has left, the list goes on with the next one.
  const bool is_there = request.after.starts_with(*node + " ");
  of_node.after = is_there ? request.after.substr(space + 1) : "";
  auto page = nodes_->call<msg::Segments>(retry, NodeAt{*node}, of_node);
  if (page.status().code() == StatusCode::kNotFound) page = msg::Segments{};
  PRECIS_TRY(page.status());
  if (page->next.empty() && ++node == addresses.end()) return page;
  page->next.insert(0, *node + " ");
  return page;
}
// Nodes may each have one, or the same one.
Result<msg::SegmentInfo> RemoteOperator::find_segment(const std::string& id_beginning) {
  PRECIS_ASSIGN(auto found, call_holders<msg::SegmentInfo>(msg::FindPrefix{id_beginning}));
  for (const msg::SegmentInfo& other : found) {
    if (other.id == found.front().id) continue;
    return Status::invalid("the ids of several segments begin with '" + id_beginning + "': " +
                           found.front().id.hex() + ", " + other.id.hex() + "; give more digits");
  }
  return std::move(found.front());
}
Result<msg::SegmentInfo> RemoteOperator::segment(const SegmentId& id) {
  return call_holder<msg::SegmentInfo>(msg::ShowPrefix{id});
}
Result<msg::Checked> RemoteOperator::check_segment(const SegmentId& id) {
  return call_holder<msg::Checked>(msg::CheckPrefix{id}, Patience::kWhileAlive);
}
Result<msg::Trimmed> RemoteOperator::trim_segment(const SegmentId& id, const Budget& keep,
                                                  Durability durability, bool dry_run) {
  return call_holder<msg::Trimmed>(msg::TrimPrefix{id, keep, durability, dry_run},
                                   Patience::kWhileAlive);
}

Result<msg::SegmentInfo> RemoteOperator::set_retention(const msg::SetRetention& change) {
  return call_holder<msg::SegmentInfo>(change);
}
Result<msg::Removed> RemoteOperator::remove_segment(const SegmentId& id, bool recursive) {
  PRECIS_ASSIGN(const auto parts,
                call_holders<msg::Removed>(msg::RemovePrefix{id, recursive}, Patience::kOneTimeout,
                                           Nodes::Repeat::kUnsafe));
  msg::Removed removed;
  for (const msg::Removed& part : parts) {
    removed.segments += part.segments;
    removed.bytes += part.bytes;
  }
  return removed;
}
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
Result<msg::Events> RemoteOperator::events(const msg::ListEvents& after) {
  return call<msg::Events>(after);
}
Result<msg::IssuedToken> RemoteOperator::add_tenant(const msg::AddTenant& tenant) {
  return call_once<msg::IssuedToken>(tenant);
}
Result<std::vector<msg::TenantRow>> RemoteOperator::tenants() {
  return all_rows<msg::Tenants>(msg::ListTenants{});
}
Result<msg::TenantRow> RemoteOperator::tenant(const std::string& name) {
  return call<msg::TenantRow>(msg::ShowTenant{name});
}
Result<msg::TenantRow> RemoteOperator::change_tenant(const msg::ChangeTenant& change) {
  return call<msg::TenantRow>(change);
}
Result<msg::IssuedToken> RemoteOperator::rotate_token(const std::string& name, bool drop_old) {
  return call_once<msg::IssuedToken>(msg::RotateToken{name, drop_old});
}
// Nothing is asked of a service that is in no cluster.
Status RemoteOperator::ask_all_first(Retry& retry,
                                     const std::function<Status(const Target&)>& ask) {
  PRECIS_ASSIGN(const auto targets, nodes_->all(retry));
  for (const Target& node : targets) {
    if (targets.size() == 1 && std::holds_alternative<AnyNode>(node)) break;
    retry.went_well();
    const Status status = ask(node);
    if (status.code() != StatusCode::kNotFound) PRECIS_TRY(status);  // else the node has left
  }
  return {};
}

// In a cluster each node first removes what it stores of the tenant, or says that it stores some.
Result<msg::Removed> RemoteOperator::remove_tenant(const std::string& name, bool purge) {
  msg::RemoveTenant request{name, purge, /*here_only=*/true};
  Retry retry = begin(request);
  msg::Removed removed;
  const auto remove = [&](const Target& node) -> Status {
    PRECIS_ASSIGN(const auto some,
                  nodes_->call<msg::Removed>(retry, node, request, Patience::kWhileAlive,
                                             Nodes::Repeat::kUnsafe));
    removed.segments += some.segments;
    removed.bytes += some.bytes;
    return {};
  };
  PRECIS_TRY(ask_all_first(retry, remove));
  retry.went_well();
  request.here_only = false;
  PRECIS_TRY(remove(AnyNode{}));
  return removed;
}
Result<msg::BackupState> RemoteOperator::start_backup(const msg::StartBackup& request) {
  return call_once<msg::BackupState>(request);
}
Result<msg::BackupState> RemoteOperator::backup() {
  return call<msg::BackupState>(msg::ShowBackup{});
}
Result<msg::BackupState> RemoteOperator::cancel_backup() {
  return call<msg::BackupState>(msg::CancelBackup{});
}
Result<msg::Backups> RemoteOperator::backups() { return call<msg::Backups>(msg::ListBackups{}); }
Result<msg::Stats> RemoteOperator::stats() { return call<msg::Stats>(msg::GetStats{}); }
Result<msg::ServerStatus> RemoteOperator::status() {
  return call<msg::ServerStatus>(msg::GetStatus{});
}
Result<msg::ClusterState> RemoteOperator::cluster() {
  return call<msg::ClusterState>(msg::ShowCluster{});
}
Result<msg::ClusterState> RemoteOperator::drain_node(const std::string& node, bool on) {
  return call<msg::ClusterState>(msg::DrainNode{node, on});
}

}  // namespace precis
