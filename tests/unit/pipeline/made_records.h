// Records of a layer, sealed as the kernels seal them, with random bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "precis/types.h"

namespace precis::testing {

// The segment, layer and shape of a layer's records.
struct LayerPlace {
  SegmentId segment;
  std::uint32_t layer = 0;
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;
};

using Seats = std::vector<std::vector<std::uint32_t>>;  // [heads], each [entries], ascending

// One record a head, concatenated: head h has an entry for each of seats[h].
std::vector<std::byte> make_records(const LayerPlace& place, const Seats& seats,
                                    std::mt19937& random);

}  // namespace precis::testing
