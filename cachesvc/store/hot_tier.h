// The RAM tier, a cache in front of the store: layers of segments in arena memory, checked and in
// their stored form. It holds copies only; evicted layers are still in the store.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/base/arena.h"
#include "cachesvc/store/eviction_policy.h"
#include "precis/view.h"

namespace precis {

// One layer's records in the arena.
class HotLayer {
 public:
  HotLayer(std::shared_ptr<Arena::Buffer> buffer, std::shared_ptr<std::atomic<std::size_t>> live);
  ~HotLayer();
  HotLayer(const HotLayer&) = delete;
  HotLayer& operator=(const HotLayer&) = delete;
  Bytes bytes() const { return buffer_->bytes(); }
  std::size_t taken_bytes() const { return Arena::taken_bytes(buffer_->bytes().size()); }
  // True if another owner shares the memory, for example the store while it writes the layer.
  bool is_shared() const { return buffer_.use_count() > 1; }

 private:
  std::shared_ptr<Arena::Buffer> buffer_;
  // Shared by the tier and its layers, because a lease may outlive its tier.
  std::shared_ptr<std::atomic<std::size_t>> live_bytes_;
};

struct HotTierStats {
  std::size_t bytes = 0;  // taken by all layers that are not freed, also by erased, leased ones
  std::size_t limit_bytes = 0;
  std::uint64_t entries = 0;
  std::uint64_t hits = 0, misses = 0;  // results of find()
  std::uint64_t evictions = 0;
};

// Thread-safe. Leases must not outlive the arena.
class HotTier {
 public:
  // A lease shares ownership of an entry with the tier and other readers. The last owner frees the
  // memory, so it stays valid as long as a reader has a lease.
  using Lease = std::shared_ptr<const HotLayer>;
  // Identifies the row that the bytes are stored with. A segment that was trimmed or put again has
  // another row, and bytes of its old row do not match.
  using RowIdentity = std::shared_ptr<const void>;

  using MakePolicy = std::function<std::unique_ptr<EvictionPolicy>()>;
  // Takes at most `limit_bytes`, which should fit into the arena in addition to staging.
  HotTier(std::size_t limit_bytes, MakePolicy make_policy);

  // Limits the bytes of a tenant's entries; none: only the tier's limit. Evicts the tenant's least
  // valuable entries until it holds. Entries in use stay until a later find() or insert().
  void limit_tenant(const std::string& tenant, std::optional<std::size_t> limit_bytes);
  // The bytes that the tenant's entries take.
  std::size_t bytes_of(std::string_view tenant) const;

  // Null if the layer is not present or belongs to another row.
  Lease find(const SegmentId& segment, std::uint32_t layer, const RowIdentity& row);
  // Like find(), but without a lease, a count or an effect on eviction.
  bool contains(const SegmentId& segment, std::uint32_t layer, const RowIdentity& row) const;

  // contains() for each of a segment's layers: [layers].
  std::vector<bool> present(const SegmentId& segment, std::uint32_t layers,
                            const RowIdentity& row) const;

  // Inserts the layer and returns a lease. Replaces a layer of another row, and evicts entries if
  // needed. If the layer is already present, returns a lease on the present one and frees `buffer`;
  // so erase() a segment whose bytes are in doubt before inserting it again. The lease is always
  // valid; the entry is kept only if it fits beside the entries in use.
  Lease insert(const std::string& tenant, const SegmentId& segment, std::uint32_t layer,
               RowIdentity row, std::shared_ptr<Arena::Buffer> buffer);

  // A lease on a buffer that the tier does not keep.
  Lease lend(std::shared_ptr<Arena::Buffer> buffer) const;

  // Removes all layers of a segment. Leased layers stay readable until released.
  void erase(const SegmentId& segment);

  // Evicts unused entries until their sizes add up to `size_bytes`. Returns the evicted bytes: 0 if
  // no entry can be evicted. The arena may still lack a free range of that size; in that case try
  // to allocate again, then call this again.
  std::size_t make_room(std::size_t size_bytes);

  HotTierStats stats() const;

 private:
  // A tenant's part of the tier.
  struct Share {
    std::size_t bytes = 0;
    std::optional<std::size_t> limit;
    std::unique_ptr<EvictionPolicy> policy;  // over the tenant's entries; only with a limit
  };
  using Shares = std::map<std::string, Share, std::less<>>;
  struct Entry {
    Lease lease;
    RowIdentity row;
    Shares::iterator share;
  };
  using Entries = std::map<HotKey, Entry>;
  // Callers hold mutex_ for all of these.
  void add(const HotKey& key, Entry entry);  // its bytes are counted already
  void use(const HotKey& key, const Share& share);
  void drop(Entries::iterator entry);
  // Erases a share without bytes and limit.
  void tidy(Shares::iterator share);
  // Evicts the least valuable entry of a policy. Returns the freed bytes; none if no entry can be
  // evicted.
  std::optional<std::size_t> evict_one(EvictionPolicy& policy);
  // Evicts the tenant's entries until its bytes are within its limit. Returns whether they are.
  bool keep_within_limit(Share& share);

  const std::size_t limit_bytes_;
  const MakePolicy make_policy_;
  const std::shared_ptr<std::atomic<std::size_t>> live_bytes_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  const std::unique_ptr<EvictionPolicy> policy_;  // over all entries
  Shares shares_;
  Entries entries_;
  std::uint64_t hits_ = 0, misses_ = 0, evictions_ = 0;
};

}  // namespace precis
