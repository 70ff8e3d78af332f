// The part of the catalog that loads and drops shards, if the nodes of a cluster share a storage
// (cachesvc/server/shard_keeper.h) and the catalog was opened in shards. A change of a shard that
// is not loaded is kMoved. Callers include catalog.h, which says what holds for all methods.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
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
  // that only the local store has are found too, and shared; else they are removed. An error
  // concerns only such segments.
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

  // ---- a local store that is smaller than what is stored (cachesvc/server/eviction.h)
  using SegmentPtr = std::shared_ptr<const SegmentRow>;
  // [blocking] The segments of shards in the order in which their local copies should go: first
  // those of shards that are neither loaded nor `own`, then those that were used least recently.
  // Segments of which the local store has no layer are among them.
  virtual std::vector<SegmentPtr> eviction_order(const std::vector<bool>& own) = 0;
  // The bytes of the segment's layers in the local store.
  virtual std::uint64_t local_bytes(const SegmentId& segment) const = 0;
  // A segment of eviction_order(), and what the shared storage had of it afterwards.
  struct Evictable {
    SegmentPtr row;
    std::optional<SegmentRow> shared = {};  // none: no such row
    // Another node has changed the shard since this one did.
    bool is_others = false;
  };
  struct Evicted {
    std::uint64_t segments = 0, bytes = 0;
  };
  // [blocking] Removes the layers of these segments from the local store, except of those that have
  // changed since eviction_order(), and of those of which it has, or may have, the only copy.
  virtual Result<Evicted> evict(std::span<const Evictable> segments) = 0;
  // From now on a layer that was read from the shared storage is kept in the local store only if
  // the store's payload is then at most `bytes`.
  virtual void limit_kept(std::uint64_t bytes) = 0;

  // Segments that only the local store had and that were removed, since opening.
  virtual std::uint64_t lost_segments() const = 0;
};

}  // namespace precis
