// Storage that all nodes of a cluster reach (docs/design/cluster.md). It has rows, which are kept
// by shard, and objects, which are never changed. Only the holder of a shard can write the shard's
// rows, which the storage itself checks.
//
// Every shard has a mark, which names its holder. A node takes a shard by writing its own mark over
// the mark that it has read, and each write of rows compares the mark and counts its sequence up.
// So a former holder's write fails, and no write is applied twice or late.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "precis/shards.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// Shards whose rows the storage keeps together, so that many are taken at once.
inline constexpr std::uint32_t kShardGroups = 64;
inline std::uint32_t group_of(std::uint32_t shard) { return shard % kShardGroups; }

struct ShardMark {
  std::uint64_t epoch = 0;     // grows with every change of the table of owners
  std::uint64_t sequence = 0;  // counts the writes since the shard was taken
  bool released = false;       // the holder has given the shard up
  std::string node;            // names the disk of the node that wrote last; empty: none did
  std::string instance;        // names the holder, until it stops
  bool operator==(const ShardMark&) const = default;
};

struct SharedBatch {
  std::vector<std::pair<std::string, std::vector<std::byte>>> puts;  // keys and values
  std::vector<std::string> deletes;  // keys; none of them is in `puts`
};

// Thread-safe. Calls block. kUnavailable if the storage does not answer in time: then a write may
// have been applied, and the same call can be made again. kOutOfSpace if it is full; a full storage
// may still accept rows.
class SharedTier {
 public:
  virtual ~SharedTier() = default;

  // The marks of shards of one group, in their order; none: nobody has taken the shard.
  virtual Result<std::vector<std::optional<ShardMark>>> marks(
      std::span<const std::uint32_t> shards) = 0;
  // Replaces the marks of shards of one group, all or none. kConflict if one of them is not `from`.
  // OK if all are `to` already.
  struct Change {
    std::uint32_t shard = 0;
    std::optional<ShardMark> from;
    ShardMark to;
  };
  virtual Status change_marks(std::span<const Change> changes) = 0;
  // Visits all rows of shards of one group.
  using Visit = std::function<Status(std::uint32_t shard, std::string_view key, Bytes value)>;
  virtual Status scan(std::span<const std::uint32_t> shards, const Visit& row) = 0;
  // The rows of a shard with these keys, in their order; none: there is no such row.
  virtual Result<std::vector<std::optional<std::vector<std::byte>>>> rows(
      std::uint32_t shard, std::span<const std::string> keys) = 0;
  // Applies all of the batch or nothing, and replaces `from` by the mark with the next sequence.
  // kMoved if the mark is neither.
  virtual Status write(std::uint32_t shard, const ShardMark& from, const SharedBatch& batch) = 0;

  // Objects. A name has letters, digits, dots and hyphens only.
  virtual Status write_object(const std::string& name, Bytes value) = 0;
  // kNotFound if absent, kCorruption if its size is not that of `into`.
  virtual Status read_object(const std::string& name, MutableBytes into) = 0;
  // OK if it is absent.
  virtual Status remove_object(const std::string& name, std::uint64_t size_bytes) = 0;
  // Visits the names of all objects, in any order; those that are written or removed meanwhile may
  // be missing. An object in several pieces is visited for each of them, also if some are missing.
  // `size_bytes` is for remove_object() alone: the largest that was visited removes all pieces.
  using VisitObject = std::function<Status(const std::string& name, std::uint64_t size_bytes)>;
  virtual Status list_objects(const VisitObject& object) = 0;

  // Rows that any node may write, for what all nodes have in common.
  virtual Status write_common(const SharedBatch& batch) = 0;
  virtual Status scan_common(
      const std::function<Status(std::string_view key, Bytes value)>& row) = 0;
};

}  // namespace precis
