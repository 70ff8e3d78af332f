// The content of the payload files, in numbers.
#include <algorithm>

#include "cachesvc/store/extent_files.h"

namespace precis {

std::set<std::uint32_t> ExtentFiles::live_files() const {
  std::set<std::uint32_t> live;
  std::lock_guard lock(mutex_);
  for (const auto& [number, entry] : files_) {
    if (entry.live > 0) live.insert(number);
  }
  return live;
}

ExtentFiles::Stats ExtentFiles::stats() const {
  std::lock_guard lock(mutex_);
  Stats stats;
  stats.missing_bytes = missing_bytes_;
  for (const auto& [number, entry] : files_) {
    stats.live_bytes += entry.live;
    stats.file_bytes += entry.file ? entry.size - std::min(entry.size, entry.punched) : 0;
    ++stats.files;
  }
  return stats;
}

}  // namespace precis
