// Records of a layer as the kernels seal them, of random bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "precis/types.h"

namespace precis::testing {

// Where a layer's records belong, and what they are of.
struct LayerPlace {
  SegmentId segment;
  std::uint32_t layer = 0;
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;
};

using Seats = std::vector<std::vector<std::uint32_t>>;  // [heads], each [entries], ascending

// One record a head, behind each other: head h keeps an entry for each of seats[h].
std::vector<std::byte> make_records(const LayerPlace& place, const Seats& seats,
                                    std::mt19937& random);

}  // namespace precis::testing
