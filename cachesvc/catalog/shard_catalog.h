// The part of the catalog that loads and drops shards, if the nodes of a cluster share a storage
// (cachesvc/server/shard_keeper.h) and the catalog was opened in shards. A change of a shard that
// is not loaded is kMoved. Callers include catalog.h, which says what holds for all methods.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cachesvc/store/row_store.h"
#include "precis/catalog_row.h"

namespace precis {

class ShardCatalog {
 public:
  virtual ~ShardCatalog() = default;

  struct StoredRow {
    Table table;
    std::string key;
    std::vector<std::byte> value;
  };
  struct LoadedShard {
    std::uint32_t shard = 0;
    bool was_holder = false;      // nobody else has changed it since this store did
    std::vector<StoredRow> rows;  // segments and sessions
  };
  // [blocking] From now on the shard's segments and sessions are found. If `was_holder`, segments
  // that only the local store has are found too, and shared; else they are removed. An error is
  // about such segments alone.
  virtual Status load_shard(LoadedShard shard) = 0;
  // [blocking] Shards are no longer loaded. Returns the segments that are not found any more. The
  // local store keeps what it has of them until remove_here(), which is for shards that are not
  // loaded.
  virtual std::vector<SegmentId> drop_shards(const std::vector<bool>& shards) = 0;
  virtual void remove_here(const std::vector<bool>& shards) = 0;
  // [blocking] Segments of shards that another node holds, which this one serves too until that
  // time of the monotonic clock: served_segment() finds them. Rows that are no segments of the
  // tenant are ignored.
  virtual void keep_guests(std::string_view tenant, std::vector<StoredRow> rows,
                           std::uint64_t until_ns) = 0;
  virtual bool is_guest(const SegmentRow& row) const = 0;  // whether the row is one of these
  // Forgets those that have not been kept again for a while, and returns them.
  virtual std::vector<SegmentId> end_guests() = 0;
  // Segments that only the local store had and that were removed, since opening.
  virtual std::uint64_t lost_segments() const = 0;
};

}  // namespace precis
