#include "cachesvc/capacity/capacity_manager.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "precis/reader_budget.h"
#include "precis/record_format.h"

namespace precis {
namespace {

constexpr std::chrono::seconds kAfterFruitless{1}, kTurn{1};
// An entry's bytes beside its K and V rows: position, seat, score, its share of a checksum.
constexpr std::uint64_t kBesideRows = 3 * 4 + kChecksumBytes / kChecksumBlockEntries;

Result<msg::Removed> changed_meanwhile(const SegmentId& id) {
  return Status::conflict("segment " + id.hex() + " has changed meanwhile");
}

std::uint64_t share_of(double share, std::uint64_t bytes) {
  return static_cast<std::uint64_t>(share * static_cast<double>(bytes));
}

// Parses each recipe and looks up each model once.
class Entries {
 public:
  explicit Entries(const Catalog& catalog) : catalog_(catalog) {}
  // The bytes of an entry; those of a raw one if the model is not known.
  std::uint64_t entry_bytes(const SegmentRow& row, std::uint64_t full_entries) {
    const Result<ModelSpec>& model = model_of(row);
    const std::uint64_t rows = model.ok() ? EntryForm::of(*model, row.encoding).bytes()
                                          : row.original_bytes / full_entries;
    return rows + kBesideRows;
  }
  // The share of all entries of `tokens` tokens that later queries see; all, if the model is not
  // known.
  double visible_share(const SegmentRow& row, std::uint32_t tokens) {
    const Result<ModelSpec>& model = model_of(row);
    if (!model.ok() || model->windows.empty()) return 1;
    const double heads = 1.0 * model->num_layers * model->num_kv_heads;
    return static_cast<double>(model->entries_max(tokens)) / (heads * tokens);
  }
  // The entries that a trim leaves at least; all, if the recipe or the model is not
  // known.
  std::uint64_t least(const SegmentRow& row) {
    auto recipe = recipes_.find(row.recipe);
    if (recipe == recipes_.end()) {
      recipe = recipes_.emplace(row.recipe, parse_recipe(row.recipe)).first;
    }
    const Result<ModelSpec>& model = model_of(row);
    const std::uint64_t stored = row.plan.total();
    if (!recipe->second.ok() || !model.ok()) return stored;
    const auto least = asked_entries(row, stored, *recipe->second, *model, Budget::entries(1));
    return least.ok() ? *least : stored;
  }

 private:
  const Result<ModelSpec>& model_of(const SegmentRow& row) {
    const std::pair<std::string_view, Digest> of_model{row.tenant, row.model};
    auto model = models_.find(of_model);
    if (model == models_.end()) {
      model = models_.emplace(of_model, catalog_.model(row.tenant, row.model)).first;
    }
    return model->second;
  }

  const Catalog& catalog_;
  // Both borrow from the rows.
  std::unordered_map<std::string_view, Result<Recipe>> recipes_;
  std::map<std::pair<std::string_view, Digest>, Result<ModelSpec>> models_;
};

}  // namespace

CapacityManager::CapacityManager(Parts parts, Settings settings)
    : parts_(parts), settings_(std::move(settings)) {
  // Posted, because a put that is being admitted calls this.
  parts_.quota.on_change([this] { parts_.loop.post([this] { check(); }); });
}

std::uint64_t CapacityManager::high_mark(std::uint64_t limit) { return share_of(kHighMark, limit); }

// Bytes that must go although no put waits. Promises do not count: a put may store less, or
// nothing.
std::uint64_t CapacityManager::above_mark(const DiskQuota::Scope& scope) {
  if (scope.stored <= high_mark(scope.limit)) return 0;
  return scope.stored - share_of(kLowMark, scope.limit);
}

void CapacityManager::check() {
  if (stopped_) return;
  parts_.quota.retry();  // clients may have freed space, which nothing else reports
  if (busy_ || parts_.clock.now() < next_) return;
  const auto scopes = parts_.quota.scopes();
  if (std::ranges::all_of(scopes, [](const auto& scope) { return to_free(scope) == 0; })) return;
  busy_ = true;
  spawn(run());
}

// Scopes take turns, so that a slow one does not hold up the others.
Task<void> CapacityManager::run() {
  bool changed = false;
  for (bool again = true; again && !stopped_; changed = changed || again) {
    again = false;
    const std::vector<DiskQuota::Scope> before = parts_.quota.scopes();
    for (const DiskQuota::Scope& each : before) {
      const auto now = parts_.quota.scopes();  // an earlier turn may have freed enough here, too
      const auto scope = std::ranges::find(now, each.tenant, &DiskQuota::Scope::tenant);
      if (scope == now.end() || to_free(*scope) == 0) continue;
      again = co_await relieve(*scope) || again;
      parts_.quota.retry();
      if (stopped_) break;
    }
  }
  uncut_.clear();
  if (!changed) next_ = parts_.clock.now() + kAfterFruitless;
  busy_ = false;
}

CapacityManager::Plan CapacityManager::plan(const DiskQuota::Scope& scope, const Settings& settings,
                                            std::uint64_t bytes) const {
  Plan plan{parts_.catalog.stored_uses(scope.tenant), {}};
  const std::uint64_t now_ms = parts_.clock.unix_ms();
  const auto seconds_since = [&](std::uint64_t unix_ms) {
    return now_ms > unix_ms ? static_cast<double>(now_ms - unix_ms) / 1000 : 0;
  };
  std::unordered_map<SegmentId, std::uint32_t> at;
  std::unordered_map<std::string_view, std::uint32_t> owners;
  std::vector<Candidate> candidates;
  Entries entries(parts_.catalog);
  for (const StoredUse& use : plan.uses) {
    const SegmentRow& row = *use.row;
    Candidate c;
    if (const auto parent = at.find(row.parent); parent != at.end()) c.parent = parent->second;
    at.emplace(row.id, static_cast<std::uint32_t>(candidates.size()));
    c.owner = owners.emplace(row.tenant, static_cast<std::uint32_t>(owners.size())).first->second;
    c.stored_bytes = row.stored_bytes;
    c.entries = row.plan.total();
    const std::uint32_t tokens = row.end - row.begin;
    c.full_entries = std::uint64_t{tokens} * row.plan.num_layers * row.plan.num_kv_heads;
    if (c.full_entries > 0) c.entry_bytes = entries.entry_bytes(row, c.full_entries);
    if (row.whole_entries > 0) {  // a trim of a part means a share of the whole
      const std::uint64_t whole = std::uint64_t{row.whole_end - row.whole_begin} *
                                  row.plan.num_layers * row.plan.num_kv_heads;
      c.full_entries = whole * c.entries / row.whole_entries;
    }
    if (tokens > 0) c.visible_share = entries.visible_share(row, tokens);
    // A segment out of service can't be hit, so it goes first. It can't be read and cut.
    c.trimmable = use.in_service && !uncut_.contains(row.id);
    c.least_entries = entries.least(row);
    if (use.in_service) {
      c.prefill_seconds =
          static_cast<double>(tokens) * parts_.prefill.seconds_per_token(row.tenant, row.model);
    }
    c.said_seconds = row.prefill_seconds;
    c.held = use.pinned;
    c.use.hits = use.hits;
    c.use.age_s = seconds_since(row.created_unix_ms);
    c.use.idle_s = seconds_since(std::max(use.last_used_unix_ms, row.created_unix_ms));
    c.use.in_session = use.in_session;
    c.use.priority = use.retention.priority;
    c.use.ttl_s = static_cast<double>(use.retention.ttl_seconds);
    c.use.expected = use.retention.expected_unix_ms > now_ms;
    candidates.push_back(c);
  }
  plan.steps = choose_steps(candidates, settings.ladder, settings.policy, bytes);
  return plan;
}

Task<bool> CapacityManager::relieve(const DiskQuota::Scope& scope) {
  const Settings settings = settings_;  // a reload may change them meanwhile
  std::uint64_t wanted = to_free(scope);
  const Plan made = co_await run_on(parts_.storage, parts_.loop, Owner(scope.tenant),
                                    [&] { return plan(scope, settings, wanted); });
  std::uint64_t possible = 0, freed = 0, trimmed = 0, dropped = 0;
  bool refused = false;
  for (const CapacityStep& step : made.steps) possible += step.freed_bytes;
  if (scope.missing > possible) {
    // Nothing is given up for a put that would not fit. If puts in progress store less than they
    // were promised, or can be trimmed later, it may fit then.
    // Since the plan was begun, another put may have become the first, or the limit have changed.
    const auto scopes = parts_.quota.scopes();
    const auto now = std::ranges::find(scopes, scope.tenant, &DiskQuota::Scope::tenant);
    const bool is_same = now != scopes.end() && now->wanted == scope.wanted &&
                         now->limit == scope.limit && now->missing > possible;
    if (is_same && now->stored - std::min(now->stored, possible) + now->wanted > now->limit) {
      parts_.quota.refuse_first(scope.tenant);
      refused = true;
    }
    wanted = above_mark(scope);
  }
  const Clock::Time until = parts_.clock.now() + kTurn;
  for (const CapacityStep& step : made.steps) {
    if (stopped_ || freed >= wanted || parts_.clock.now() > until) break;
    const StoredUse& use = made.uses[step.candidate];
    const auto done = co_await carry_out(use, step);
    // The trim found no memory. Its segment must not be dropped for that.
    if (done.status().code() == StatusCode::kRejected) break;
    // The segment changed, has a new child, or cannot be cut: the next plan does not trim it.
    if (step.keep > 0 && (!done.ok() || *done == 0)) uncut_.insert(use.row->id);
    if (!done.ok()) continue;
    freed += *done;
    ++(step.keep > 0 ? trimmed : dropped);
    parts_.quota.retry();
  }
  if (freed > 0) {
    parts_.log.info("made room for puts", {{"tenant", scope.tenant.empty() ? "all" : scope.tenant},
                                           {"max_disk_bytes", scope.limit},
                                           {"freed_bytes", freed},
                                           {"trimmed", trimmed},
                                           {"dropped", dropped}});
  }
  co_return freed > 0 || refused;
}

Task<Result<std::uint64_t>> CapacityManager::carry_out(const StoredUse& use,
                                                       const CapacityStep& step) {
  const SegmentRow& row = *use.row;
  if (step.keep > 0) {
    PRECIS_CO_ASSIGN(const Budget budget, Budget::ratio(step.keep));
    msg::TrimPrefix request;
    request.segment = row.id;
    request.budget = budget;
    PRECIS_CO_ASSIGN(const msg::Trimmed done,
                     co_await parts_.trim.run(Owner(row.tenant), std::move(request)));
    if (done.freed_bytes > 0) ++parts_.metrics.capacity_trims;
    parts_.metrics.capacity_freed_bytes += static_cast<std::int64_t>(done.freed_bytes);
    co_return done.freed_bytes;
  }
  PRECIS_CO_ASSIGN(const msg::Removed done,
                   co_await run_on(parts_.storage, parts_.loop, Owner(row.tenant), [&] {
                     // A consolidated segment has the id of its last former one.
                     const auto now = parts_.catalog.stored_segment(row.tenant, row.id);
                     if (now.ok() && *now->row != row) return changed_meanwhile(row.id);
                     return parts_.catalog.remove(row.tenant, row.id, /*recursive=*/false, nullptr,
                                                  msg::KvEvent::Cause::kCapacity);
                   }));
  parts_.hot_tier.erase(row.id);
  parts_.memory.retry();
  parts_.metrics.capacity_drops += static_cast<std::int64_t>(done.segments);
  parts_.metrics.capacity_freed_bytes += static_cast<std::int64_t>(done.bytes);
  co_return done.bytes;
}

}  // namespace precis
