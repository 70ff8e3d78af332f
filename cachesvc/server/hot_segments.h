// Which segments a node serves so much that other nodes of the cluster should serve them too. Loop
// thread only.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "cachesvc/base/clock.h"
#include "precis/types.h"

namespace precis {

class HotSegments {
 public:
  // `bytes_per_s`: more than this is hot; 0: nothing is.
  HotSegments(const Clock& clock, std::uint64_t bytes_per_s)
      : clock_(clock), bytes_per_s_(bytes_per_s) {}

  // Counts bytes that were served of a prefix that ends with this segment.
  void served(const SegmentId& tip, std::uint64_t bytes);
  // Whether it was hot a few seconds ago, or is now.
  bool is_hot(const SegmentId& tip) const;

 private:
  struct Rate {
    std::uint64_t since_ns = 0, bytes = 0;  // of the present second
    std::uint64_t hot_until_ns = 0;
  };
  void forget_cold(std::uint64_t now_ns);

  const Clock& clock_;
  const std::uint64_t bytes_per_s_;
  std::unordered_map<SegmentId, Rate> rates_;
  std::uint64_t forgot_ns_ = 0;
};

}  // namespace precis
