// The joining order of segments that become one. Each segment's order is spread evenly over its
// tokens: an entry with seat s of a segment of n tokens comes at s / n, and equal ones come in the
// order of the segments. So a budget that is a share of the tokens has the entries that it has in
// each segment, up to the rounding of each segment's budget.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace precis {

class MergedSeats {
 public:
  struct Segment {
    std::uint64_t tokens = 0;   // at least 1
    std::uint64_t entries = 0;  // its seats are 1 to `entries`
  };
  explicit MergedSeats(std::vector<Segment> segments) : segments_(std::move(segments)) {}

  // The seat, among the entries of all segments, of the entry with seat `seat` of segment `which`.
  // Seats of one segment keep their order. Work: the number of segments.
  std::uint32_t of(std::size_t which, std::uint32_t seat) const {
    const std::uint64_t tokens = segments_[which].tokens;
    std::uint64_t before = seat;
    for (std::size_t other = 0; other < segments_.size(); ++other) {
      if (other == which) continue;
      // An entry of `other` at the same place comes before this entry if `other` does.
      const std::uint64_t scaled = seat * segments_[other].tokens - (other < which ? 0 : 1);
      before += std::min(segments_[other].entries, scaled / tokens);
    }
    return static_cast<std::uint32_t>(before);
  }

 private:
  std::vector<Segment> segments_;
};

}  // namespace precis
