#include "cachesvc/catalog/catalog_state.h"

#include "cachesvc/catalog/catalog_keys.h"

namespace precis {
namespace {

// The most expired sessions that one change also erases, so that no change becomes slow.
constexpr std::size_t kExpiredPerChange = 64;

}  // namespace

CatalogState::CatalogState(Store& store, const Clock& clock, std::uint64_t kept_bytes_max,
                           bool in_shards)
    : held_(in_shards ? limits::kShards : 0),
      store_(store),
      clock_(clock),
      kept_bytes_max_(kept_bytes_max),
      leases_(store, clock),
      tree_([this](std::string_view tenant, const Digest& fingerprint) {
        return find_model(tenant, fingerprint);
      }),
      sessions_([this](const SegmentId& tip, int by) { tree_.pin(tip, by); }) {}

void CatalogState::set_pinned_limits(PinnedLimits limits) {
  std::lock_guard lock(pinned_limits_mutex_);
  pinned_limits_ = std::move(limits);
}

Status CatalogState::check_pinned_room(std::string_view tenant, std::uint64_t more_bytes,
                                       const std::string& what) {
  std::uint64_t of_tenant = 0, of_all = 0;
  {
    std::lock_guard lock(pinned_limits_mutex_);
    const auto own = pinned_limits_.of_tenant.find(tenant);
    if (own != pinned_limits_.of_tenant.end()) of_tenant = own->second;
    of_all = pinned_limits_.of_all;
  }
  const auto fits = [&](std::uint64_t pinned, std::uint64_t limit) {
    return limit == 0 || (pinned <= limit && more_bytes <= limit - pinned);
  };
  for (;;) {
    const TenantSegments* const segments = tree_.of_tenant(tenant);
    const std::uint64_t own = segments ? segments->totals().pinned_bytes : 0;
    const std::uint64_t all = tree_.pinned_bytes();
    const bool is_own = !fits(own, of_tenant);
    if (more_bytes == 0 || (!is_own && fits(all, of_all))) return {};
    if (sessions_.expired(clock_.unix_ms(), 1).empty()) {
      return Status::out_of_space(
          what + ": pinned sessions " + (is_own ? "of this tenant" : "of all tenants") +
          " would hold " + std::to_string((is_own ? own : all) + more_bytes) + " B, and may hold " +
          std::to_string(is_own ? of_tenant : of_all) +
          " B (max_pinned_share of max_disk_bytes); unpin or remove sessions (precisctl session "
          "unpin), or raise the limit");
    }
    PRECIS_TRY(write({}, Durability::kWal));  // erases expired sessions
  }
}

Status CatalogState::write(Change change, Durability durability) {
  std::vector<SegmentId> hits_saved;
  add_hits(change, hits_saved);
  const std::vector<Sessions::Key> expired = sessions_.expired(clock_.unix_ms(), kExpiredPerChange);
  for (const Sessions::Key& key : expired) {
    std::string row = session_key(key.tenant, key.name);
    // Skips a session that this change creates again under the same name.
    if (!change.puts(Table::kSessions, row)) change.erase_session(key.tenant, sessions_.at(key));
    end_budget(change, key.tenant, key.name);
  }
  // A change that a crash may lose does not carry marks: they would be lost with it.
  const bool with_marks = durability != Durability::kMemory;
  if (with_marks) {
    for (const SegmentId& id : marks_to_save_) change.put(Table::kMeta, quarantine_key(id), {});
  }

  if (const Status status = write_to_store(change.batch(), durability); !status.ok()) {
    for (const SegmentId& id : hits_saved) save_use_later(*tree_.find(id), id);
    return status;
  }
  if (with_marks) {
    marks_.merge(marks_to_save_);
    marks_to_save_.clear();
  }
  std::unique_lock lock(state_);
  for (const Sessions::Key& key : expired) {
    sessions_.erase(key);
    budget_ended(key.tenant, key.name);
  }
  for (const auto& put : change.batch().puts) bad_rows_.erase({put.table, put.key});
  return {};
}

Status CatalogState::write_to_store(const StoreBatch& batch, Durability durability) {
  for (const StoreBatch::SharedRow& row : batch.shared_rows) {
    if (!in_shards() || held_.at(row.shard)) continue;
    return Status::moved("another node owns the shard " + std::to_string(row.shard) + " by now");
  }
  return store_.write(batch, durability);
}

void CatalogState::end_budget(Change& change, std::string_view tenant, const std::string& session) {
  if (!budgets_.has(tenant, {{}, session})) return;
  if (agree_) {
    ended_budgets_.emplace(tenant, session);
    return;
  }
  std::string key = budget_key(tenant, {}, session);
  // Skips what this change sets.
  if (!change.puts(Table::kBudgets, key)) change.erase(Table::kBudgets, std::move(key));
}

void CatalogState::budget_ended(std::string_view tenant, const std::string& session) {
  if (!agree_) budgets_.erase(tenant, {{}, session});
}

// Queues the node once, for a change that saves its hits.
void CatalogState::save_use_later(const SegmentNode& node, const SegmentId& id) {
  if (node.use_unsaved.exchange(true)) return;
  std::lock_guard lock(hits_mutex_);
  unsaved_hits_.push_back(id);
}

// Adds rows whose hit count has grown. Skips volatile segments: a crash could lose their payload
// and leave this row. Also skips rows that the change itself writes.
void CatalogState::add_hits(Change& change, std::vector<SegmentId>& saved) {
  std::vector<SegmentId> ids;
  {
    std::lock_guard lock(hits_mutex_);
    while (!unsaved_hits_.empty() && ids.size() < kHitRowsPerChange) {
      ids.push_back(unsaved_hits_.front());
      unsaved_hits_.pop_front();
    }
  }
  for (const SegmentId& id : ids) {
    const SegmentNode* const node = tree_.find(id);
    if (!node) continue;
    if (is_volatile(*node) || change.puts(Table::kSegments, segment_key(id))) {
      std::lock_guard lock(hits_mutex_);
      unsaved_hits_.push_back(id);
      continue;
    }
    // Cleared before the count is read, so that a later hit is saved again.
    node->use_unsaved = false;
    if (!node->in_service) continue;
    SegmentRow row = *node->row;
    node->copy_use(row);
    change.put_segment_here(row);  // only a guess is lost if another node takes over
    saved.push_back(id);
  }
}

const ModelSpec* CatalogState::find_model(std::string_view tenant,
                                          const Digest& fingerprint) const {
  const auto model = models_.find({std::string(tenant), fingerprint});
  return model == models_.end() ? nullptr : &model->second.spec;
}

Result<const CatalogState::Model*> CatalogState::known_model(std::string_view tenant,
                                                             const Digest& fingerprint) const {
  const auto model = models_.find({std::string(tenant), fingerprint});
  if (model != models_.end()) return &model->second;
  return Status::not_found("model " + fingerprint.hex() +
                           " is not registered; register_model first");
}

std::pair<CatalogState::Models::const_iterator, CatalogState::Models::const_iterator>
CatalogState::models_of(std::string_view tenant) const {
  const auto first = models_.lower_bound({std::string(tenant), Digest{}});
  const auto last = std::find_if(first, models_.end(),
                                 [&](const auto& model) { return model.first.first != tenant; });
  return {first, last};
}

Result<const SegmentNode*> CatalogState::find_any(std::string_view tenant,
                                                  const SegmentId& id) const {
  const SegmentNode* const node = tree_.find_current(id);
  if (node && node->row->tenant == tenant) return node;
  return Status::not_found("segment " + id.hex() +
                           " is not stored; look the path up again, or put it");
}

Result<const SegmentNode*> CatalogState::find_node(std::string_view tenant,
                                                   const SegmentId& id) const {
  PRECIS_ASSIGN(const SegmentNode* const node, find_any(tenant, id));
  if (node->row->id != id) {
    return Status::not_found("segment " + id.hex() + " was consolidated into segment " +
                             node->row->id.hex() + "; look the path up again, or put it again");
  }
  if (!node->in_service) {
    return Status::corruption("segment " + id.hex() +
                              " is out of service: its stored bytes, or those of an ancestor, "
                              "failed a check; put it again or remove it");
  }
  return node;
}

Result<const msg::SessionRow*> CatalogState::find_session(std::string_view tenant,
                                                          std::string_view name) const {
  if (const auto* const row = sessions_.find(tenant, name, clock_.unix_ms())) return row;
  return Status::not_found("session '" + std::string(name) +
                           "' does not exist; precisctl session ls lists them");
}

std::optional<Digest> CatalogState::model_of(std::string_view tenant,
                                             std::string_view session) const {
  const auto row = find_session(tenant, session);
  const SegmentNode* const tip = row.ok() ? tree_.find((*row)->tip) : nullptr;
  return tip ? std::optional(tip->row->model) : std::nullopt;
}

bool CatalogState::is_volatile(const SegmentNode& node) const {
  return node.durability == Durability::kMemory && node.commit > hardened_;
}

bool CatalogState::chain_is_volatile(const SegmentNode* tip) const {
  for (; tip; tip = tip->parent) {
    if (is_volatile(*tip)) return true;
  }
  return false;
}

bool CatalogState::is_marked(const SegmentId& id) const {
  return marks_.contains(id) || marks_to_save_.contains(id);
}

}  // namespace precis
