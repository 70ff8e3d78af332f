#include "cachesvc/pipeline/consolidator.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace precis {
namespace {

constexpr std::size_t kMemoryShare = 16;   // a run and its copy take at most twice this part
constexpr std::uint64_t kLargerTimes = 2;  // than what follows

}  // namespace

std::size_t worth_consolidating(std::span<const std::uint64_t> bytes, std::size_t least,
                                std::uint64_t bytes_max) {
  std::uint64_t after = 0;
  std::size_t count = 0;
  for (auto size = bytes.rbegin(); size != bytes.rend() && count < kConsolidatedMax; ++size) {
    if (count > 0 && *size > kLargerTimes * after) break;
    if (*size > bytes_max - after) break;
    after += *size;
    ++count;
  }
  return count < std::max<std::size_t>(least, 2) ? 0 : count;
}

void WaitingTips::add(const Owner& owner, const SegmentId& segment) {
  std::size_t of_tenant = 0;
  for (const Tip& each : tips_) {
    if (each.owner.tenant != owner.tenant) continue;
    if (each.segment == segment || ++of_tenant >= kOfTenantMax) return;
  }
  if (tips_.size() >= kMax) {
    std::map<std::string_view, std::size_t> counts;
    for (const Tip& each : tips_) ++counts[each.owner.tenant];
    // The tenant with the most tips loses its newest one, unless this tenant has as many.
    const auto most =
        std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; });
    if (most->second <= of_tenant + 1) return;
    const std::string_view tenant = most->first;
    const auto newest = std::ranges::find_if(
        tips_.rbegin(), tips_.rend(), [&](const Tip& tip) { return tip.owner.tenant == tenant; });
    tips_.erase(std::next(newest).base());
  }
  tips_.push_back({owner, segment});
}

// Tenants take turns in the order of their names. Takes the oldest tip of the tenant whose turn it
// is.
WaitingTips::Tip WaitingTips::take_next() {
  const auto turn = [this](const Tip& tip) {
    const std::string_view tenant = tip.owner.tenant;
    return std::pair(tenant <= last_tenant_, tenant);
  };
  const auto next = std::ranges::min_element(tips_, {}, turn);
  Tip taken = std::move(*next);
  tips_.erase(next);
  last_tenant_ = taken.owner.tenant;
  return taken;
}

Consolidator::Consolidator(Parts parts, Settings settings)
    : parts_(parts),
      settings_(settings),
      path_({parts.loop, parts.reads, parts.storage, parts.cold, parts.memory, parts.catalog,
             parts.hot_tier, parts.metrics}) {}

void Consolidator::committed(const Owner& owner, const SegmentId& tip) {
  if (stopped_ || !settings_.on) return;
  tips_.add(owner, tip);
  if (std::exchange(busy_, true)) return;
  spawn(work());
}

void Consolidator::stop() {
  stopped_ = true;
  tips_.clear();
}

bool Consolidator::others_wait() const {
  return parts_.memory.waiting() + parts_.put_room.waiting() + parts_.disk_quota.waiting() > 0;
}

Task<void> Consolidator::work() {
  while (!tips_.empty()) {
    const WaitingTips::Tip tip = tips_.take_next();
    if (others_wait()) continue;
    const auto done = co_await consolidate(tip.owner, tip.segment);
    parts_.memory.retry();  // its memory is free now, on errors too
    if (!done.ok() && done.status().code() != StatusCode::kOutOfSpace) {
      parts_.log.warn("a chain could not be consolidated", {{"status", done.status().to_string()}});
    }
  }
  busy_ = false;
}

Task<Result<bool>> Consolidator::consolidate(Owner owner, SegmentId tip) {
  std::vector<Catalog::Row> run = co_await run_on(parts_.storage, parts_.loop, owner, [&] {
    return parts_.catalog.mergeable(owner.tenant, tip);
  });
  std::vector<std::uint64_t> bytes;
  for (const Catalog::Row& row : run) bytes.push_back(row->stored_bytes);
  const std::size_t count =
      worth_consolidating(bytes, settings_.least_links, parts_.arena_bytes / kMemoryShare);
  run.erase(run.begin(), run.end() - static_cast<std::ptrdiff_t>(count));
  if (run.empty() || stopped_) co_return false;
  // A put on a segment that is merged into a later one would fail at its commit.
  for (const Catalog::Row& row : run) {
    if (row != run.back() && parts_.puts.builds_on(row->id)) co_return false;
  }
  co_return co_await path_.run(owner, std::move(run));
}

}  // namespace precis
