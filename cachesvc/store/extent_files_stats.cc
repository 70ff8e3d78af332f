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
  sums_.files = files_.size();
}

ExtentFiles::Stats ExtentFiles::stats() const {
  return {.live_bytes = sums_.live_bytes,
          .file_bytes = sums_.file_bytes,
          .files = sums_.files,
          .missing_bytes = sums_.missing_bytes};
}

}  // namespace precis
