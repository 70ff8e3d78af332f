#include "cachesvc/server/warm_tier.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "cachesvc/capacity/steps.h"

namespace precis {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};

std::uint64_t share_of(double share, std::uint64_t bytes) {
  return static_cast<std::uint64_t>(share * static_cast<double>(bytes));
}

}  // namespace

WarmTier::WarmTier(const Parts& parts, Eviction::Parts eviction)
    : parts_(parts),
      eviction_(std::move(eviction)),
      thread_(parts.runtime.make_executor("warm", 1)) {
  parts_.quota.measure_disk([&store = parts_.store] { return store.payload_bytes(); });
  look();
  look_later();
}

WarmTier::~WarmTier() {
  eviction_.stop();
  thread_.reset();
}

std::uint64_t WarmTier::limit(std::uint64_t warm_disk_bytes, const StoreHealth& disk,
                              const StoreStats& stored) {
  std::uint64_t limit =
      warm_disk_bytes > 0 ? warm_disk_bytes : std::numeric_limits<std::uint64_t>::max();
  if (disk.total_bytes > 0) {
    // The space that other files and rows leave. Space that removed values took is freed soon.
    const std::uint64_t room = stored.payload_bytes + stored.unclaimed_bytes + disk.free_bytes;
    limit = std::min(limit, room - std::min(room, 2 * disk.min_free_bytes));
  }
  return std::max<std::uint64_t>(limit, 1);
}

void WarmTier::look_later() {
  timer_ = parts_.loop.after(kLookEvery, [this] {
    const auto fired = std::move(timer_);  // lives until the end of its own call
    look();
    look_later();
  });
}

void WarmTier::look() {
  const std::uint64_t most =
      limit(parts_.config.warm_disk_bytes, parts_.disk.health(), parts_.disk.stats());
  parts_.quota.limit_disk(most);
  const DiskQuota::Scope now = parts_.quota.disk();
  parts_.catalog.limit_kept(most - std::min(most, now.promised + now.wanted));  // puts come first
  if (busy_ || parts_.loop.clock().now() < next_) return;
  const bool is_above = now.stored > share_of(kHighMark, most);
  const std::uint64_t above = is_above ? now.stored - share_of(kLowMark, most) : 0;
  if (const std::uint64_t bytes = std::max(above, now.missing); bytes > 0) evict(bytes);
}

void WarmTier::evict(std::uint64_t bytes) {
  busy_ = true;
  asked_ = bytes;
  thread_->post([this, bytes] {
    const auto freed = [this] { parts_.loop.post([&quota = parts_.quota] { quota.retry(); }); };
    const std::vector<bool> own = parts_.membership.owned().shards;
    Eviction::Done done;  // without a table of owners, no segment is known to be another node's
    if (!own.empty()) done = eviction_.run(bytes, own, freed);
    parts_.loop.post([this, done] { note(done); });
  });
}

void WarmTier::note(const Eviction::Done& done) {
  busy_ = false;
  parts_.metrics.warm_evictions += static_cast<std::int64_t>(done.segments);
  parts_.metrics.warm_evicted_bytes += static_cast<std::int64_t>(done.bytes);
  // Until more is copied, there is nothing to gain by reading all rows again.
  const bool is_fruitless = done.bytes < asked_;
  if (is_fruitless) next_ = parts_.loop.clock().now() + pause_;
  pause_ = is_fruitless ? std::min(2 * pause_, kPauseMax) : kPauseMin;
  if (!done.problem.ok() && problem_.ok()) {
    parts_.log.warn("the node's disk is nearly full, and nothing on it can be given up now",
                    {{"error", done.problem.message()}});
  }
  problem_ = done.problem;
}

}  // namespace precis
