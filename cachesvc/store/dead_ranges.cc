#include "cachesvc/store/dead_ranges.h"

#include <iterator>

namespace precis {

void DeadRanges::add(std::uint64_t offset, std::uint64_t size) {
  auto next = ranges_.lower_bound(offset);
  if (next != ranges_.end() && next->first == offset + size) {
    size += next->second;
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin()) {
    auto& [before, length] = *std::prev(next);
    if (before + length == offset) {
      length += size;
      return;
    }
  }
  ranges_.emplace_hint(next, offset, size);
}

void DeadRanges::remove(std::uint64_t offset, std::uint64_t size) {
  const auto range = --ranges_.upper_bound(offset);
  const std::uint64_t begin = range->first, end = range->first + range->second;
  ranges_.erase(range);
  if (begin < offset) ranges_.emplace(begin, offset - begin);
  if (offset + size < end) ranges_.emplace(offset + size, end - offset - size);
}

}  // namespace precis
