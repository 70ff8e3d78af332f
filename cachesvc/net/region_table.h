// The memory regions that a client has exposed to its server on one connection. Every access of the
// server is checked against this table, and an Exposure can end while an access is in progress.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cachesvc/base/clock.h"
#include "precis/remote_region.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// kInvalidArgument unless [offset, offset + size) lies within `region`.
Status check_range(const RemoteRegion& region, std::uint64_t offset, std::uint64_t size);

// kInvalidArgument unless `range` lies within the registered memory.
Status check_part(MutableBytes range, MutableBytes registered);

// Thread-safe. The connection and its Exposures share it; either may be destroyed first.
class RegionTable : public std::enable_shared_from_this<RegionTable> {
 public:
  // `clock` outlives it.
  explicit RegionTable(const Clock& clock) : clock_(clock) {}
  // Permission to access a range of an exposed region. The end of the region waits for it.
  class Access {
   public:
    Access(Access&& other) noexcept = default;
    Access& operator=(Access&&) = delete;
    ~Access();
    MutableBytes bytes() const { return bytes_; }

   private:
    friend class RegionTable;
    Access(std::shared_ptr<RegionTable> table, std::uint64_t id, MutableBytes bytes)
        : table_(std::move(table)), id_(id), bytes_(bytes) {}
    std::shared_ptr<RegionTable> table_;
    std::uint64_t id_;
    MutableBytes bytes_;
  };

  // Returns the new region's id. Ids are never reused.
  std::uint64_t add(MutableBytes bytes);
  // kNotFound if no such region is exposed (any more), kInvalidArgument if the range is outside it.
  Result<Access> access(std::uint64_t id, std::uint64_t offset, std::uint64_t size);

  // A region ends in two steps: retire() refuses new accesses; remove() waits for the last access
  // and erases the region.
  void retire(std::uint64_t id);
  void remove(std::uint64_t id);

 private:
  struct Region {
    MutableBytes bytes;
    std::size_t accesses = 0;
    bool retired = false;
  };
  void release(std::uint64_t id);

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable released_;
  std::unordered_map<std::uint64_t, Region> regions_;
  std::uint64_t next_id_ = 1;
};

}  // namespace precis
