#include "client/src/remote_operator.h"

#include <utility>

namespace precis {

Result<std::vector<msg::SegmentInfo>> RemoteOperator::segments(std::optional<Digest> model,
                                                               std::uint32_t limit) {
  std::vector<msg::SegmentInfo> rows;
  msg::ListPrefixes request{model};
  while (rows.size() < limit) {
    const std::size_t wanted = limit - rows.size();
    request.limit = static_cast<std::uint32_t>(std::min<std::size_t>(wanted, request.limit));
    PRECIS_ASSIGN(msg::Segments page, segments_page(request));
    std::ranges::move(page.rows, std::back_inserter(rows));
    if (page.next.empty()) break;
    request.after = std::move(page.next);
  }
  return rows;
}
Result<msg::Segments> RemoteOperator::segments_page(const msg::ListPrefixes& request) {
  return call<msg::Segments>(request);
}
Result<msg::SegmentInfo> RemoteOperator::find_segment(const std::string& id_beginning) {
  return call<msg::SegmentInfo>(msg::FindPrefix{id_beginning});
}
Result<msg::SegmentInfo> RemoteOperator::segment(const SegmentId& id) {
  return call<msg::SegmentInfo>(msg::ShowPrefix{id});
}
Result<msg::Checked> RemoteOperator::check_segment(const SegmentId& id) {
  return call<msg::Checked>(msg::CheckPrefix{id}, Patience::kWhileAlive);
}
Result<msg::Trimmed> RemoteOperator::trim_segment(const SegmentId& id, const Budget& keep,
                                                  Durability durability, bool dry_run) {
  return call<msg::Trimmed>(msg::TrimPrefix{id, keep, durability, dry_run}, Patience::kWhileAlive);
}

Result<msg::SegmentInfo> RemoteOperator::set_retention(const msg::SetRetention& change) {
  return call<msg::SegmentInfo>(change);
}
Result<msg::Removed> RemoteOperator::remove_segment(const SegmentId& id, bool recursive) {
  return call_once<msg::Removed>(msg::RemovePrefix{id, recursive});
}
Result<msg::Budgets> RemoteOperator::budgets(std::optional<Digest> model,
                                             const std::string& session) {
  return call<msg::Budgets>(msg::ShowBudget{{model, session}});
}
Result<msg::Budgets> RemoteOperator::set_budget(const msg::SetBudget& change) {
  if (change.dry_run) return call<msg::Budgets>(change, Patience::kWhileAlive);
  return call_once<msg::Budgets>(change);
}
Result<msg::BudgetRevisions> RemoteOperator::budget_revisions(
    const msg::ListBudgetRevisions& which) {
  return call<msg::BudgetRevisions>(which);
}
Result<msg::BudgetChanges> RemoteOperator::compare_budgets(const msg::CompareBudgets& which) {
  return call<msg::BudgetChanges>(which);
}
Result<msg::BudgetRevision> RemoteOperator::roll_back_budget(const msg::RollBackBudget& change) {
  return call_once<msg::BudgetRevision>(change);
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
Result<msg::Removed> RemoteOperator::remove_tenant(const std::string& name, bool purge) {
  return call<msg::Removed>(msg::RemoveTenant{name, purge}, Patience::kWhileAlive,
                            ReconnectingChannel::Repeat::kUnsafe);
}
Result<msg::BudgetApplication> RemoteOperator::application() {
  return call<msg::BudgetApplication>(msg::ShowApplication{});
}
Result<msg::BudgetApplication> RemoteOperator::cancel_application(std::uint64_t number) {
  return call<msg::BudgetApplication>(msg::CancelApplication{number});
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
