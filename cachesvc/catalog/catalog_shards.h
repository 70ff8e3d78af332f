// Taking and giving up shards, if nodes share a storage. Private to this folder.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "cachesvc/catalog/catalog_state.h"

namespace precis {

// Compares two versions of a segment: a put makes a later one, and a trim one with fewer entries.
bool is_newer(const SegmentRow& row, const SegmentRow& than);

class CatalogShards : public virtual CatalogState {
 public:
  Status load_shard(LoadedShard shard) override;
  std::vector<SegmentId> drop_shards(const std::vector<bool>& shards) override;
  void remove_here(const std::vector<bool>& shards) override;
  void keep_guests(std::string_view tenant, std::vector<StoredRow> rows,
                   std::uint64_t until_ns) override;
  std::vector<SegmentId> end_guests() override;
  std::vector<SegmentPtr> eviction_order(const std::vector<bool>& own) override;
  std::uint64_t local_bytes(const SegmentId& segment) const override;
  Result<Evicted> evict(std::span<const Evictable> segments) override;
  void limit_kept(std::uint64_t bytes) override { local_bytes_max_ = bytes; }
  std::uint64_t lost_segments() const override { return lost_segments_; }

 protected:
  // At the end of the catalog: removes rows of segments that it does not have loaded, and of which
  // the local store has no layer any more. The shared storage has them.
  void forget_evicted();

 private:
  struct Read;
  static Read read_rows(const LoadedShard& shard);
  // Callers hold changes_ for the functions below.
  // The local store has all of its layers.
  bool is_whole_here(const SegmentRow& row) const;
  std::vector<Row> take_kept_here(const LoadedShard& shard, Read& read);
  Status share(const Row& row);
  Status erase_some(std::span<const Row>& rows);

  std::atomic<std::uint64_t> lost_segments_ = 0;
};

}  // namespace precis
