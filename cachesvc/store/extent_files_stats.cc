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

std::uint64_t ExtentFiles::bytes_of(const Entry& entry) {
  return entry.file ? entry.size - std::min(entry.size, entry.punched) : 0;
}

void ExtentFiles::sum_up() {
  for (const auto& [number, entry] : files_) {
    sums_.live_bytes += entry.live;
    sums_.file_bytes += bytes_of(entry);
  }
}

ExtentFiles::Stats ExtentFiles::stats() const {
  std::lock_guard lock(mutex_);
  Stats stats = sums_;
  stats.files = files_.size();
  return stats;
}

}  // namespace precis
