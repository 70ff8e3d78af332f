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

HotTier::HotTier(std::size_t limit_bytes, MakePolicy make_policy)
    : limit_bytes_(limit_bytes),
      make_policy_(std::move(make_policy)),
      live_bytes_(std::make_shared<std::atomic<std::size_t>>(0)),
      policy_(make_policy_()) {}

void HotTier::limit_tenant(const std::string& tenant, std::optional<std::size_t> limit_bytes) {
  std::lock_guard lock(mutex_);
  const auto share = shares_.try_emplace(tenant).first;
  share->second.limit = limit_bytes;
  if (!limit_bytes) {
    share->second.policy.reset();
    return tidy(share);
  }
  if (!share->second.policy) {
    share->second.policy = make_policy_();
    for (const auto& [key, entry] : entries_) {
      if (entry.share == share) share->second.policy->added(key, entry.lease->taken_bytes());
    }
  }
  keep_within_limit(share->second);
}

std::size_t HotTier::bytes_of(std::string_view tenant) const {
  std::lock_guard lock(mutex_);
  const auto share = shares_.find(tenant);
  return share == shares_.end() ? 0 : share->second.bytes;
}

HotTier::Lease HotTier::find(const SegmentId& segment, std::uint32_t layer,
                             const RowIdentity& row) {
  std::lock_guard lock(mutex_);
  const auto entry = entries_.find({segment, layer});
  if (entry == entries_.end() || entry->second.row != row) {
    ++misses_;
    return nullptr;
  }
  ++hits_;
  Share& share = entry->second.share->second;
  use(entry->first, share);
  Lease lease = entry->second.lease;  // so this entry is not evicted
  keep_within_limit(share);
  return lease;
}

bool HotTier::contains(const SegmentId& segment, std::uint32_t layer,
                       const RowIdentity& row) const {
  std::lock_guard lock(mutex_);
  const auto entry = entries_.find({segment, layer});
  return entry != entries_.end() && entry->second.row == row;
}

std::vector<bool> HotTier::present(const SegmentId& segment, std::uint32_t layers,
                                   const RowIdentity& row) const {
  std::vector<bool> present(layers);
  std::lock_guard lock(mutex_);
  for (auto entry = entries_.lower_bound({segment, 0});
       entry != entries_.end() && entry->first.segment == segment && entry->first.layer < layers;
       ++entry) {
    present[entry->first.layer] = entry->second.row == row;
  }
  return present;
}

HotTier::Lease HotTier::insert(const std::string& tenant, const SegmentId& segment,
                               std::uint32_t layer, RowIdentity row,
                               std::shared_ptr<Arena::Buffer> buffer) {
  const HotKey key{segment, layer};
  std::lock_guard lock(mutex_);
  if (const auto here = entries_.find(key); here != entries_.end()) {
    if (here->second.row == row) {
      use(key, here->second.share->second);
      return here->second.lease;
    }
    drop(here);
  }
  Lease lease = std::make_shared<const HotLayer>(std::move(buffer), live_bytes_);
  const auto share = shares_.try_emplace(tenant).first;
  share->second.bytes += lease->taken_bytes();
  const bool may_fit = !share->second.limit || lease->taken_bytes() <= *share->second.limit;
  bool fits = may_fit && keep_within_limit(share->second);
  while (fits && *live_bytes_ > limit_bytes_) fits = evict_one(*policy_).has_value();
  if (fits) {
    add(key, {lease, std::move(row), share});
  } else {  // all other entries are in use
    share->second.bytes -= lease->taken_bytes();
    tidy(share);
  }
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
    const auto one = evict_one(*policy_);
    if (!one) break;
    freed += *one;
  }
  return freed;
}

bool HotTier::keep_within_limit(Share& share) {
  while (share.limit && share.bytes > *share.limit) {
    if (!evict_one(*share.policy)) return false;
  }
  return true;
}

std::optional<std::size_t> HotTier::evict_one(EvictionPolicy& policy) {
  // Leases are handed out only under the lock, so an entry that only the tier owns stays so.
  // Evicting an entry whose memory is shared, for example while it is being written, would free
  // nothing.
  const auto key = policy.victim([this](const HotKey& k) {
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

void HotTier::add(const HotKey& key, Entry entry) {
  const std::size_t bytes = entry.lease->taken_bytes();
  Share& share = entry.share->second;
  policy_->added(key, bytes);
  if (share.policy) share.policy->added(key, bytes);
  entries_.emplace(key, std::move(entry));
}

void HotTier::use(const HotKey& key, const Share& share) {
  policy_->used(key);
  if (share.policy) share.policy->used(key);
}

void HotTier::drop(Entries::iterator entry) {
  const auto of_tenant = entry->second.share;
  Share& share = of_tenant->second;
  policy_->removed(entry->first);
  if (share.policy) share.policy->removed(entry->first);
  share.bytes -= entry->second.lease->taken_bytes();
  entries_.erase(entry);
  tidy(of_tenant);
}

void HotTier::tidy(Shares::iterator share) {
  if (share->second.bytes == 0 && !share->second.limit) shares_.erase(share);
}

HotTierStats HotTier::stats() const {
  std::lock_guard lock(mutex_);
  return {*live_bytes_, limit_bytes_, entries_.size(), hits_, misses_, evictions_};
}

}  // namespace precis
