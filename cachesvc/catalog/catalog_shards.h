// Taking and giving up shards, if nodes share a storage. Private to this folder.
#pragma once

#include <vector>

#include "cachesvc/catalog/catalog_eviction.h"

namespace precis {

class CatalogShards : public CatalogEviction {
 public:
  Status load_shard(LoadedShard shard) override;
  std::vector<SegmentId> drop_shards(const std::vector<bool>& shards) override;
  void keep_guests(std::string_view tenant, std::vector<StoredRow> rows,
                   std::uint64_t until_ns) override;
  std::vector<SegmentId> end_guests() override;

 private:
  struct Read;
  static Read read_rows(const LoadedShard& shard);
  // Callers hold changes_ for the functions below.
  std::vector<Row> take_kept_here(const LoadedShard& shard, Read& read);
  bool is_whole_here(const SegmentRow& row) const;  // the local store has all of its layers
  Status share(const Row& row);
};

}  // namespace precis
