// Copies the changes of one shard to the storage that nodes share, some at a time and in their
// order, while the node holds the shard.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/shared/shared_tier.h"
#include "cachesvc/store/store.h"

namespace precis {

// One change of a shard.
struct Upload {
  struct Object {
    std::string name;
    std::uint64_t size_bytes = 0;
  };
  std::vector<Object> added;  // their values, in the same order, are `values`
  std::shared_ptr<const KeptPayload> values;
  SharedBatch rows;
  std::vector<Object> removed;  // after the rows
};

// One thread at a time, except abandon().
class ShardCopier {
 public:
  // `tier` outlives it.
  ShardCopier(SharedTier& tier, std::uint32_t shard) : tier_(tier), shard_(shard) {}

  // Any thread. Nobody waits for copy() any more, so it ends soon.
  void abandon() { is_abandoned_ = true; }

  // Says in the mark that this node changes the shard, before it does. kMoved if the mark is
  // another.
  Status name(const ShardMark& mark, const std::string& node);

  // Whether there are changes that copy() has not copied. A write that failed may have been made,
  // so the same changes are written again until it is known.
  bool is_begun() const { return !changes_.empty(); }
  void begin(std::vector<Upload> changes);
  struct Copied {
    Status status;
    std::vector<Status> each;  // what is wrong with single changes
    Status removed;            // why objects that no row names are left, which is no error
  };
  // [blocking] Copies these changes. A segment whose local copy is damaged is not copied.
  Copied copy(const ShardMark& mark);

 private:
  Status write_objects(const Upload& change, std::size_t& written);
  Status remove_objects(const std::map<std::string, std::uint64_t>& sizes);

  SharedTier& tier_;
  const std::uint32_t shard_;
  std::atomic<bool> is_abandoned_ = false;
  std::vector<Upload> changes_;
  std::vector<std::size_t> written_;  // objects of each change
  // The keys of rows that are not shared, because the bytes that they name can't be copied.
  std::set<std::string> unshared_;
};

}  // namespace precis
