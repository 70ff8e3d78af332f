// The vector types for coding rows, and the transform of kInt4 (precis/row_code.h).
// Only for loops that isa.h compiles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/common/lanes.h"

namespace precis::kernels {

using Halves = std::uint16_t __attribute__((vector_size(kLanes * sizeof(std::uint16_t))));
using Shorts = std::int16_t __attribute__((vector_size(kLanes * sizeof(std::int16_t))));

template <typename Vector>
PRECIS_INLINE Vector larger_of(Vector a, Vector b) {
  return a > b ? a : b;
}

template <int kStep, typename Vector, int... kLane>
PRECIS_INLINE Vector exchanged(Vector x, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(x, x, (kLane ^ kStep)...);
}
// -1 in the lanes whose index has the bit kStep, 1 in the others.
template <int kStep, typename Vector, int... kLane>
PRECIS_INLINE Vector signs(std::integer_sequence<int, kLane...>) {
  return Vector{((kLane & kStep) != 0 ? -1 : 1)...};
}
// For each two lanes at a distance of kStep: their sum in the first, their difference in the
// second.
template <int kStep, typename Vector>
PRECIS_INLINE Vector combined(Vector x) {
  constexpr auto kAll = std::make_integer_sequence<int, int{kLanes}>();
  return x * signs<kStep, Vector>(kAll) + exchanged<kStep>(x, kAll);
}

// The stages go from the largest distance to the smallest, which decides how sums are rounded.
template <typename Vector, std::size_t kVectors>
PRECIS_INLINE void rotate(std::array<Vector, kVectors>& x) {
  for (std::size_t step = kVectors / 2; step > 0; step /= 2) {
    for (std::size_t i = 0; i < kVectors; ++i) {
      if ((i & step) != 0) continue;
      const Vector a = x[i], b = x[i + step];
      x[i] = a + b;
      x[i + step] = a - b;
    }
  }
  for (Vector& v : x) v = combined<1>(combined<2>(combined<4>(combined<8>(v))));
}

}  // namespace precis::kernels
