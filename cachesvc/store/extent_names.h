// Finds payload files that something else has deleted from their folder.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/store/files.h"

namespace precis {

// Thread-safe.
class ExtentNames {
 public:
  // [blocking] Returns those of the open files `numbers` that the folder does not name. None if the
  // folder cannot be listed, which proves nothing about any file.
  std::vector<std::uint32_t> missing(Folder& folder, std::span<const std::uint32_t> numbers);

 private:
  std::mutex mutex_;
  // Guarded by mutex_: the folder's stamp at the last call, the time since which it has had that
  // stamp, and whether a later listing named all files.
  std::optional<std::uint64_t> stamp_;
  Clock::Time since_{};
  bool is_whole_ = false;
};

// kUnavailable, for a file that was deleted while the service ran.
Status deleted_extent_file(std::uint32_t number);

}  // namespace precis
