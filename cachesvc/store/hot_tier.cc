// Layers indexed by (segment, layer), bounded in bytes (hot_tier.h).
#include "cachesvc/store/hot_tier.h"

#include <utility>

namespace precis {

HotLayer::HotLayer(std::shared_ptr<Arena::Buffer> buffer,
                   std::shared_ptr<std::atomic<std::size_t>> live)
    : buffer_(std::move(buffer)), live_bytes_(std::move(live)) {
  *live_bytes_ += taken_bytes();
}

HotLayer::~HotLayer() { *live_bytes_ -= taken_bytes(); }

HotTier::HotTier(std::size_t limit_bytes, std::unique_ptr<EvictionPolicy> policy)
    : limit_bytes_(limit_bytes),
      live_bytes_(std::make_shared<std::atomic<std::size_t>>(0)),
      policy_(std::move(policy)) {}

HotTier::Lease HotTier::find(const SegmentId& segment, std::uint32_t layer, const Of& of) {
  std::lock_guard lock(mutex_);
  const auto entry = entries_.find({segment, layer});
  if (entry == entries_.end() || entry->second.of != of) {
    ++misses_;
    return nullptr;
  }
  ++hits_;
  policy_->used(entry->first);
  return entry->second.lease;
}

bool HotTier::contains(const SegmentId& segment, std::uint32_t layer, const Of& of) const {
  std::lock_guard lock(mutex_);
  const auto entry = entries_.find({segment, layer});
  return entry != entries_.end() && entry->second.of == of;
}

std::vector<bool> HotTier::present(const SegmentId& segment, std::uint32_t layers,
                                   const Of& of) const {
  std::vector<bool> present(layers);
  std::lock_guard lock(mutex_);
  for (auto entry = entries_.lower_bound({segment, 0});
       entry != entries_.end() && entry->first.segment == segment && entry->first.layer < layers;
       ++entry) {
    present[entry->first.layer] = entry->second.of == of;
  }
  return present;
}

HotTier::Lease HotTier::insert(const SegmentId& segment, std::uint32_t layer, Of of,
                               std::shared_ptr<Arena::Buffer> buffer) {
  const HotKey key{segment, layer};
  std::lock_guard lock(mutex_);
  if (const auto here = entries_.find(key); here != entries_.end()) {
    if (here->second.of == of) {
      policy_->used(key);
      return here->second.lease;
    }
    drop(here);
  }
  Lease lease = std::make_shared<const HotLayer>(std::move(buffer), live_bytes_);
  while (*live_bytes_ > limit_bytes_) {
    if (!evict_one()) return lease;  // all other entries are in use: not kept
  }
  entries_.emplace(key, Entry{lease, std::move(of)});
  policy_->added(key, lease->taken_bytes());
  return lease;
}

HotTier::Lease HotTier::lend(std::shared_ptr<Arena::Buffer> buffer) const {
  return std::make_shared<const HotLayer>(std::move(buffer), live_bytes_);
}

void HotTier::erase(const SegmentId& segment) {
  std::lock_guard lock(mutex_);
  auto entry = entries_.lower_bound({segment, 0});
  while (entry != entries_.end() && entry->first.segment == segment) drop(entry++);
}

std::size_t HotTier::make_room(std::size_t size_bytes) {
  std::lock_guard lock(mutex_);
  std::size_t freed = 0;
  while (freed < size_bytes) {
    const auto one = evict_one();
    if (!one) break;
    freed += *one;
  }
  return freed;
}

std::optional<std::size_t> HotTier::evict_one() {
  // Leases are handed out only under the lock, so an entry that only the tier owns stays so.
  // Evicting an entry whose memory is shared, for example while it is being written, would free
  // nothing.
  const auto key = policy_->victim([this](const HotKey& k) {
    const Lease& lease = entries_.at(k).lease;
    return lease.use_count() == 1 && !lease->is_shared();
  });
  if (!key) return std::nullopt;
  const auto entry = entries_.find(*key);
  const std::size_t size_bytes = entry->second.lease->taken_bytes();
  drop(entry);
  ++evictions_;
  return size_bytes;
}

void HotTier::drop(Entries::iterator entry) {
  policy_->removed(entry->first);
  entries_.erase(entry);
}

HotTierStats HotTier::stats() const {
  std::lock_guard lock(mutex_);
  return {*live_bytes_, limit_bytes_, entries_.size(), hits_, misses_, evictions_};
}

}  // namespace precis
