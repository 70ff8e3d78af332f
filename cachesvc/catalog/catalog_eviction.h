// The local copies of segments, if nodes share a storage, and their removal. Private to this
// folder.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "cachesvc/catalog/catalog_state.h"

namespace precis {

// Compares two versions of a segment: a put makes a later one, and a trim one with fewer entries.
bool is_newer(const SegmentRow& row, const SegmentRow& than);

class CatalogEviction : public virtual CatalogState {
 public:
  void remove_here(const std::vector<bool>& shards) override;
  std::vector<SegmentPtr> eviction_order(const std::vector<bool>& own) override;
  std::uint64_t local_bytes(const SegmentId& segment) const override;
  Result<Evicted> evict(std::span<const Evictable> segments) override;
  void limit_kept(std::uint64_t bytes) override { local_bytes_max_ = bytes; }
  std::uint64_t lost_segments() const override { return lost_segments_; }

 protected:
  // At the end of the catalog: removes rows of segments that it does not have loaded, and of which
  // the local store has no layer any more. The shared storage has them.
  void forget_evicted();
  // Callers hold changes_. Removes the first of these copies. If it fails, they take space until
  // the shard is loaded or dropped again.
  Status erase_some(std::span<const Row>& rows);

  std::atomic<std::uint64_t> lost_segments_ = 0;
};

}  // namespace precis
