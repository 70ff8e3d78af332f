#include "cachesvc/capacity/capacity_manager.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "precis/record_format.h"

namespace precis {
namespace {

constexpr double kHighMark = 0.95, kLowMark = 0.90;
constexpr std::chrono::seconds kAfterFruitless{10};
// An entry's bytes beside its K and V rows: position, seat, score, its share of a checksum.
constexpr std::uint64_t kBesideRows = 3 * 4 + kChecksumBytes / kChecksumBlockEntries;

std::uint64_t share_of(double share, std::uint64_t bytes) {
  return static_cast<std::uint64_t>(share * static_cast<double>(bytes));
}

}  // namespace

CapacityManager::CapacityManager(Parts parts, Settings settings)
    : parts_(parts), settings_(std::move(settings)) {
  // Posted, because a put that is being admitted calls this.
  parts_.quota.on_change([this] { parts_.loop.post([this] { check(); }); });
}

// Bytes that a round must free: none below the high mark, unless puts wait.
std::uint64_t CapacityManager::to_free(const DiskQuota::Scope& scope) {
  const std::uint64_t high = share_of(kHighMark, scope.limit);
  const std::uint64_t low = share_of(kLowMark, scope.limit);
  const std::uint64_t above = scope.taken > high ? scope.taken - low : 0;
  return std::max(above, scope.missing);
}

void CapacityManager::check() {
  if (busy_ || stopped_) return;
  const bool is_early = parts_.clock.now() < fruitless_until_;
  const auto needs_round = [&](const DiskQuota::Scope& scope) {
    return scope.missing > 0 || (!is_early && to_free(scope) > 0);
  };
  if (std::ranges::none_of(parts_.quota.scopes(), needs_round)) return;
  busy_ = true;
  spawn(run());
}

Task<void> CapacityManager::run() {
  for (bool again = true; again && !stopped_;) {
    again = false;
    const std::vector<DiskQuota::Scope> scopes = parts_.quota.scopes();
    for (const DiskQuota::Scope& scope : scopes) {
      if (to_free(scope) == 0) continue;
      const Freed freed = co_await relieve(scope);
      parts_.quota.retry();
      if (stopped_) break;
      if (freed.nothing_left) parts_.quota.refuse(scope.tenant);
      if (freed.bytes == 0) fruitless_until_ = parts_.clock.now() + kAfterFruitless;
      again = again || freed.bytes > 0;  // puts may have come meanwhile
    }
  }
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
  std::vector<Candidate> candidates;
  for (const StoredUse& use : plan.uses) {
    const SegmentRow& row = *use.row;
    Candidate c;
    if (const auto parent = at.find(row.parent); parent != at.end()) c.parent = parent->second;
    at.emplace(row.id, static_cast<std::uint32_t>(candidates.size()));
    c.stored_bytes = row.stored_bytes;
    c.entries = row.plan.total();
    const std::uint64_t tokens = row.end - row.begin;
    c.full_entries = tokens * row.plan.num_layers * row.plan.num_kv_heads;
    if (c.full_entries > 0) c.entry_bytes = row.original_bytes / c.full_entries + kBesideRows;
    // A segment out of service can't be hit, so it goes first. It can't be read and cut.
    c.trimmable = use.in_service;
    if (use.in_service) {
      c.prefill_seconds = static_cast<double>(tokens) * parts_.prefill.seconds_per_token(row.model);
    }
    c.held = use.pinned;
    c.use.hits = use.hits;
    c.use.age_s = seconds_since(row.created_unix_ms);
    c.use.idle_s = seconds_since(std::max(use.last_used_unix_ms, row.created_unix_ms));
    c.use.in_session = use.in_session;
    candidates.push_back(c);
  }
  plan.steps = choose_steps(candidates, settings.ladder, settings.policy, bytes);
  return plan;
}

Task<CapacityManager::Freed> CapacityManager::relieve(const DiskQuota::Scope& scope) {
  const std::uint64_t wanted = to_free(scope);
  const Settings settings = settings_;  // a reload may change them meanwhile
  const Plan made = co_await run_on(parts_.storage, parts_.loop, Owner(scope.tenant),
                                    [&] { return plan(scope, settings, wanted); });
  std::uint64_t freed = 0, trimmed = 0, dropped = 0;
  for (const CapacityStep& step : made.steps) {
    if (stopped_ || freed >= wanted) break;
    const auto done = co_await carry_out(made.uses[step.candidate], step);
    // The segment changed meanwhile, or has a new child or a lease: the next round sees it as it
    // is then.
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
  co_return Freed{freed, made.steps.empty()};
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
    ++parts_.metrics.capacity_trims;
    parts_.metrics.capacity_freed_bytes += static_cast<std::int64_t>(done.freed_bytes);
    co_return done.freed_bytes;
  }
  PRECIS_CO_ASSIGN(const msg::Removed done,
                   co_await run_on(parts_.storage, parts_.loop, Owner(row.tenant), [&] {
                     return parts_.catalog.remove(row.tenant, row.id, /*recursive=*/false, nullptr);
                   }));
  parts_.hot_tier.erase(row.id);
  parts_.memory.retry();
  parts_.metrics.capacity_drops += static_cast<std::int64_t>(done.segments);
  parts_.metrics.capacity_freed_bytes += static_cast<std::int64_t>(done.bytes);
  co_return done.bytes;
}

}  // namespace precis
