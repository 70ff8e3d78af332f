// What one client has exposed to its server on one connection: the table that every access from
// outside is checked against, and that lets an Exposure end while an access is under way.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "precis/remote_region.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// kInvalidArgument unless [offset, offset + size) lies within `region`.
Status check_range(const RemoteRegion& region, std::uint64_t offset, std::uint64_t size);

// kInvalidArgument unless `range` lies within the registered memory.
Status check_part(MutableBytes range, MutableBytes registered);

// Thread-safe. Shared by the connection and by its Exposures, either of which may go first.
class RegionTable : public std::enable_shared_from_this<RegionTable> {
 public:
  // Leave to touch a range of an exposed region; the region's end waits for it.
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

  // The new region's id; ids are never used twice.
  std::uint64_t add(MutableBytes bytes);
  // kNotFound if no such region is exposed (any more), kInvalidArgument if the range is outside it.
  Result<Access> access(std::uint64_t id, std::uint64_t offset, std::uint64_t size);

  // Ends a region in two steps: no new access; forget it once none is left.
  void retire(std::uint64_t id);
  void remove(std::uint64_t id);

 private:
  struct Region {
    MutableBytes bytes;
    std::size_t accesses = 0;
    bool retired = false;
  };
  void release(std::uint64_t id);

  std::mutex mutex_;
  std::condition_variable released_;
  std::unordered_map<std::uint64_t, Region> regions_;
  std::uint64_t next_id_ = 1;
};

}  // namespace precis
