// The protected entries of each layer, for joiners.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/common/segment_shape.h"
#include "precis/joiner.h"

namespace precis::kernels {

// How many entries of each head are protected, [num_layers].
inline std::vector<std::uint32_t> protected_counts(const Recipe& recipe, const SegmentDims& dims) {
  std::vector<std::uint32_t> counts;
  for (std::uint32_t l = 0; l < dims.num_layers; ++l) {
    counts.push_back(SegmentShape::of(recipe, l, dims.first(l), dims.tokens(l)).protected_count());
  }
  return counts;
}

}  // namespace precis::kernels
