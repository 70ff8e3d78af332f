// The tier in RAM, in front of the store: layers of segments in arena memory, as stored and
// checked. It holds copies only; whatever goes from here is still in the store.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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
  // Whether somebody else holds the memory, too: the store while it writes it.
  bool is_shared() const { return buffer_.use_count() > 1; }

 private:
  std::shared_ptr<Arena::Buffer> buffer_;
  // Shared by the tier and all its layers: a lease may outlive the tier that gave it.
  std::shared_ptr<std::atomic<std::size_t>> live_bytes_;
};

struct HotTierStats {
  std::size_t bytes = 0;  // of all layers not freed, those erased but still leased included
  std::size_t limit_bytes = 0;
  std::uint64_t entries = 0;
  std::uint64_t hits = 0, misses = 0;  // of find()
  std::uint64_t evictions = 0;
};

// Thread-safe. Leases must not outlive the arena.
class HotTier {
 public:
  // A lease is a share in the entry: shared by the tier and every transfer that reads it, so that
  // its memory is freed by whoever lets go last, and never under a reader.
  using Lease = std::shared_ptr<const HotLayer>;
  // What bytes are of: the row they are stored with. A segment that was trimmed or put anew has
  // another one, and what is of the old one is not its bytes.
  using Of = std::shared_ptr<const void>;

  // Keeps at most `limit_bytes`, at most what the arena has to spare beside staging.
  explicit HotTier(std::size_t limit_bytes,
                   std::unique_ptr<EvictionPolicy> policy = make_s3_fifo_policy());

  // Null if the layer is not here, or of another row.
  Lease find(const SegmentId& segment, std::uint32_t layer, const Of& of);
  // The same without a lease, without counting and without renewing the entry.
  bool contains(const SegmentId& segment, std::uint32_t layer, const Of& of) const;

  // The same of each of a segment's layers [layers].
  std::vector<bool> present(const SegmentId& segment, std::uint32_t layers, const Of& of) const;

  // Takes the layer in, in the place of another row's, evicting what must go for it, and returns a
  // lease on it; if the layer is here already, a lease on that one, and `buffer` is freed: erase()
  // a segment whose bytes were doubted. The lease is good in any case; the entry is kept only if it
  // fits beside the entries that are in use.
  Lease insert(const SegmentId& segment, std::uint32_t layer, Of of,
               std::shared_ptr<Arena::Buffer> buffer);

  // A lease on what is not kept.
  Lease lend(std::shared_ptr<Arena::Buffer> buffer) const;

  // All layers of a segment. Leased ones stay readable until let go.
  void erase(const SegmentId& segment);

  // Evicts entries that nobody reads until `size_bytes` have been given back to the arena in sum;
  // returns how many were, 0 if nothing is left that may go. The arena may still have no single
  // range so large: allocate again, and call again.
  std::size_t make_room(std::size_t size_bytes);

  HotTierStats stats() const;

 private:
  struct Entry {
    Lease lease;
    Of of;
  };
  using Entries = std::map<HotKey, Entry>;
  // With mutex_ held. Bytes freed; none if nothing may go.
  std::optional<std::size_t> evict_one();
  void drop(Entries::iterator entry);

  const std::size_t limit_bytes_;
  const std::shared_ptr<std::atomic<std::size_t>> live_bytes_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::unique_ptr<EvictionPolicy> policy_;
  Entries entries_;
  std::uint64_t hits_ = 0, misses_ = 0, evictions_ = 0;
};

}  // namespace precis
