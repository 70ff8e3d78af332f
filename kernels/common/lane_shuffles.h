// Shuffles between the lanes of several vectors. Only for loops that isa.h compiles.
#pragma once

#include <utility>

#include "kernels/common/lanes.h"

namespace precis::kernels {

using Words = std::uint32_t __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));

// The result's lanes in each group of 2 * width: the first (or last) `width` lanes of a's group,
// then those of b's group.
constexpr int interleaved_lane(int lane, int width, bool last) {
  const int in_pair = lane % (2 * width), base = lane - in_pair + (last ? width : 0);
  return in_pair < width ? base + in_pair : static_cast<int>(kLanes) + base + in_pair - width;
}
template <int kWidth, bool kLast, typename Vector, int... kLane>
PRECIS_INLINE Vector interleaved(Vector a, Vector b, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, interleaved_lane(kLane, kWidth, kLast)...);
}
template <int kWidth, bool kLast, typename Vector>
PRECIS_INLINE Vector interleaved(Vector a, Vector b) {
  return interleaved<kWidth, kLast>(a, b, std::make_integer_sequence<int, int{kLanes}>());
}

template <int kWidth>
PRECIS_INLINE void transpose_stage(Words* rows) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    if ((i & kWidth) != 0) continue;
    const Words a = rows[i], b = rows[i + kWidth];
    rows[i] = interleaved<kWidth, false>(a, b);
    rows[i + kWidth] = interleaved<kWidth, true>(a, b);
  }
}
// Transposes 16 rows: rows[i][j] becomes rows[j][i].
PRECIS_INLINE void transpose(Words* rows) {
  transpose_stage<1>(rows);
  transpose_stage<2>(rows);
  transpose_stage<4>(rows);
  transpose_stage<8>(rows);
}

}  // namespace precis::kernels
