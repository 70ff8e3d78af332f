// A set of tokens, for example those pushed for a head, as ordered ranges that do not touch. Work
// of one operation: logarithmic in the number of ranges, plus moving the later ranges.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace precis {

class TokenRanges {
 public:
  bool empty() const { return ranges_.empty(); }
  // Returns how many separate ranges there would be if [begin, end) were added.
  std::size_t count_with(std::uint32_t begin, std::uint32_t end) const {
    const auto after = first_that_ends_at_or_after(begin);
    const auto last =
        std::find_if(after, ranges_.end(), [&](const Range& range) { return range.begin > end; });
    return ranges_.size() - static_cast<std::size_t>(last - after) + 1;
  }
  bool overlaps(std::uint32_t begin, std::uint32_t end) const {
    const auto range = first_that_ends_at_or_after(begin + 1);
    return range != ranges_.end() && range->begin < end;
  }
  std::uint64_t tokens() const {
    std::uint64_t sum = 0;
    for (const Range& range : ranges_) sum += range.end - range.begin;
    return sum;
  }

  // [begin, end) must not be empty and must not overlap a range.
  void add(std::uint32_t begin, std::uint32_t end) {
    auto range = ranges_.begin() + (first_that_ends_at_or_after(begin) - ranges_.cbegin());
    if (range == ranges_.end() || range->begin > end) {
      ranges_.insert(range, {begin, end});
      return;
    }
    if (range->end != begin) {
      range->begin = begin;
      return;
    }
    range->end = end;
    const auto next = range + 1;
    if (next == ranges_.end() || next->begin != end) return;
    range->end = next->end;
    ranges_.erase(next);
  }
  // All of [begin, end) must be in the set.
  void remove(std::uint32_t begin, std::uint32_t end) {
    const auto range = ranges_.begin() + (first_that_ends_at_or_after(end) - ranges_.cbegin());
    const Range whole = *range;
    if (whole.begin == begin && whole.end == end) {
      ranges_.erase(range);
    } else if (whole.begin == begin) {
      range->begin = end;
    } else {
      range->end = begin;
      if (whole.end != end) ranges_.insert(range + 1, {end, whole.end});
    }
  }

 private:
  struct Range {
    std::uint32_t begin, end;
  };
  std::vector<Range>::const_iterator first_that_ends_at_or_after(std::uint32_t token) const {
    return std::ranges::lower_bound(ranges_, token, {}, &Range::end);
  }

  std::vector<Range> ranges_;
};

}  // namespace precis
