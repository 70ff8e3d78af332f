#include <algorithm>

#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "precis/limits.h"

namespace precis {

// A session is as durable as its tip. If its row survived a crash that its tip did not, the row
// would name a segment that does not exist. A crash can leave the budget of an earlier session of
// the same name, which a new session must not have.
Status CatalogSessions::save_session(std::string_view tenant, const msg::SessionRow& row) {
  const SegmentNode* const tip = tree_.find(row.tip);
  Change change;
  change.put_session(tenant, row);
  change.is_of({}, row.tip);
  const bool is_new = !find_session(tenant, row.name).ok();
  if (is_new) end_budget(change, tenant, row.name);
  PRECIS_TRY(
      write(std::move(change), chain_is_volatile(tip) ? Durability::kMemory : Durability::kWal));
  std::unique_lock lock(state_);
  if (is_new) budget_ended(tenant, row.name);
  sessions_.put(tenant, row);
  return {};
}

// In a cluster, the budget of an ended session is removed later, but before a new session of its
// name begins.
Status CatalogSessions::end_former_budget(std::string_view tenant, const std::string& name) {
  if (!has_former_budget(tenant, name)) return {};
  return change_settings([&]() -> Result<std::vector<SettingRow>> {
    std::vector<SettingRow> rows;
    const bool is_former = budgets_.has(tenant, {{}, name}) && !find_session(tenant, name).ok();
    if (is_former) rows.push_back({Table::kBudgets, budget_key(tenant, {}, name), std::nullopt});
    return rows;
  });
}

bool CatalogSessions::has_former_budget(std::string_view tenant, const std::string& name) const {
  if (!agree_) return false;
  std::shared_lock lock(state_);
  return budgets_.has(tenant, {{}, name}) && !find_session(tenant, name).ok();
}

Status CatalogSessions::check_session_room(std::string_view tenant) const {
  if (sessions_.count(tenant, clock_.unix_ms()) < limits::kSessionsPerTenantMax) return {};
  return Status::rejected("tenant '" + std::string(tenant) + "' has " +
                          std::to_string(limits::kSessionsPerTenantMax) +
                          " sessions, which is the limit; remove some, or give them a TTL");
}

Result<msg::SessionRow> CatalogSessions::open_session(std::string_view tenant,
                                                      const msg::OpenSession& request,
                                                      std::optional<std::uint32_t> shard) {
  PRECIS_TRY(end_former_budget(tenant, request.name));
  std::lock_guard changing(changes_);
  const std::uint64_t now_ms = clock_.unix_ms();
  const msg::SessionRow* const present = sessions_.find(tenant, request.name, now_ms);
  PRECIS_ASSIGN(msg::SessionRow row, opened_session(present, request, now_ms));
  row.shard = shard;
  const bool same = present && present->ttl_seconds == row.ttl_seconds &&
                    present->expires_unix_ms == row.expires_unix_ms && present->total == row.total;
  if (same) return *present;
  if (!present) PRECIS_TRY(check_session_room(tenant));
  PRECIS_TRY(save_session(tenant, row));
  return row;
}

Status CatalogSessions::renew_session(std::string_view tenant, std::string_view name) {
  std::lock_guard changing(changes_);
  PRECIS_ASSIGN(const msg::SessionRow* const present, find_session(tenant, name));
  if (!renewal_is_due(*present, clock_.unix_ms())) return {};  // another lookup has renewed it
  return save_session(tenant, renewed_session(*present, clock_.unix_ms()));
}

Result<msg::SessionRow> CatalogSessions::advance_session(std::string_view tenant,
                                                         const msg::AdvanceSession& request) {
  std::lock_guard changing(changes_);
  PRECIS_ASSIGN(const msg::SessionRow* const present, find_session(tenant, request.name));
  PRECIS_ASSIGN(const SegmentNode* const tip, find_node(tenant, request.tip));
  // A current tip that is out of service or removed sets no condition: nothing can descend from it.
  const SegmentNode* const old_tip = tree_.find(present->tip);
  if (old_tip && old_tip->in_service) {
    const SegmentNode* below = tip;
    while (below && below != old_tip) below = below->parent;
    if (!below) {
      return Status::invalid("session '" + request.name + "': segment " + request.tip.hex() +
                             " does not descend from its tip " + present->tip.hex() + " (token " +
                             std::to_string(present->tip_end) +
                             "); fork the session before that tip, or open another");
    }
  }
  const msg::SessionRow row =
      advanced_session(*present, request.tip, tip->row->end, clock_.unix_ms());
  if (row.pinned) {
    PRECIS_TRY(check_pinned_room(tenant, tree_.unpinned_bytes(row.tip),
                                 "session '" + row.name + "' is pinned and can't advance"));
  }
  PRECIS_TRY(save_session(tenant, row));
  return row;
}

Result<msg::SessionRow> CatalogSessions::pin_session(std::string_view tenant,
                                                     const msg::PinSession& request) {
  std::lock_guard changing(changes_);
  PRECIS_ASSIGN(const msg::SessionRow* const present, find_session(tenant, request.name));
  if (present->pinned == request.pinned) return *present;
  msg::SessionRow row = *present;
  row.pinned = request.pinned;
  row.updated_unix_ms = clock_.unix_ms();
  if (row.pinned) {
    PRECIS_TRY(check_pinned_room(tenant, tree_.unpinned_bytes(row.tip),
                                 "session '" + row.name + "' can't be pinned"));
  }
  PRECIS_TRY(save_session(tenant, row));
  return row;
}

Result<msg::SessionRow> CatalogSessions::fork_session(std::string_view tenant,
                                                      const msg::ForkSession& request) {
  PRECIS_TRY(end_former_budget(tenant, request.new_name));
  std::lock_guard changing(changes_);
  PRECIS_ASSIGN(const msg::SessionRow* const present, find_session(tenant, request.name));
  const std::uint64_t now_ms = clock_.unix_ms();
  if (sessions_.find(tenant, request.new_name, now_ms)) {
    return Status::invalid("session '" + request.new_name +
                           "' exists already; choose another name for the fork, or remove it");
  }
  PRECIS_ASSIGN(const msg::SessionRow row, forked_session(*present, request.new_name, now_ms));
  PRECIS_TRY(check_session_room(tenant));
  PRECIS_TRY(save_session(tenant, row));
  return row;
}

Status CatalogSessions::remove_session(std::string_view tenant, std::string_view name) {
  std::lock_guard changing(changes_);
  PRECIS_ASSIGN(const msg::SessionRow* const present, find_session(tenant, name));
  Change change;
  change.erase_session(tenant, *present);
  end_budget(change, tenant, std::string(name));
  PRECIS_TRY(write(std::move(change), Durability::kWal));
  std::unique_lock lock(state_);
  sessions_.erase({std::string(tenant), std::string(name)});
  budget_ended(tenant, std::string(name));
  return {};
}

Result<msg::SessionRow> CatalogSessions::session(std::string_view tenant,
                                                 std::string_view name) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const msg::SessionRow* const row, find_session(tenant, name));
  return *row;
}

Result<SessionTurns> CatalogSessions::session_turns(std::string_view tenant,
                                                    std::string_view name) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const msg::SessionRow* const row, find_session(tenant, name));
  SessionTurns path{row->total, {}};
  bool is_shared = false;
  for (const SegmentNode* node = tree_.find(row->tip); node; node = node->parent) {
    bool forks = tree_.children(node->row->id).size() > 1;
    sessions_.each_at(tenant, node->row->id, clock_.unix_ms(),
                      [&](const msg::SessionRow& at) { forks |= at.name != name; });
    is_shared |= forks;
    path.turns.push_back({node->row, is_shared, forks || node->pins > 0 || !node->in_service});
  }
  std::ranges::reverse(path.turns);
  return path;
}

Result<msg::Sessions> CatalogSessions::sessions_page(std::string_view tenant,
                                                     const msg::ListSessions& request) const {
  msg::Sessions page;
  std::shared_lock lock(state_);
  page.rows = sessions_.page(tenant, request.after, limits::kListPageRowsMax, clock_.unix_ms());
  if (page.rows.size() == limits::kListPageRowsMax) page.next = page.rows.back().name;
  return page;
}

}  // namespace precis
