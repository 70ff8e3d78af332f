// Building blocks of the loops that isa.h compiles several times: 16-lane vectors and widening.
// Only for sources of precis_kernels, which are built with -Wno-psabi (kernels/CMakeLists.txt).
#pragma once

#include <cstddef>
#include <cstring>

#include "kernels/common/element_op.h"
#include "precis/types.h"

namespace precis::kernels {

// Sixteen f32 lanes: one, two or four registers. Sums over lanes end in the fixed order of
// sum_lanes, so a result depends on the instruction set alone, never on threads.
inline constexpr std::size_t kLanes = 16;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

PRECIS_INLINE Lanes load_lanes(const float* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
PRECIS_INLINE void store_lanes(float* p, Lanes v) { std::memcpy(p, &v, sizeof v); }

PRECIS_INLINE float sum_lanes(Lanes v) {
  float x[kLanes];
  store_lanes(x, v);
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) x[i] += x[i + width];
  }
  return x[0];
}

PRECIS_INLINE float dot(const float* a, const float* b, std::size_t count) {
  Lanes sum = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sum += load_lanes(a + i) * load_lanes(b + i);
  float tail = 0;
  for (; i < count; ++i) tail += a[i] * b[i];
  return sum_lanes(sum) + tail;
}

PRECIS_INLINE float sum(const float* x, std::size_t count) {
  Lanes lanes = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) lanes += load_lanes(x + i);
  float tail = 0;
  for (; i < count; ++i) tail += x[i];
  return sum_lanes(lanes) + tail;
}

// `count` elements of `dtype` at `src` as f32: `src` itself where it is f32, else widened into
// `scratch`.
PRECIS_INLINE const float* widen(Dtype dtype, const std::byte* src, std::size_t count,
                                 float* scratch) {
  if (dtype == Dtype::kF32) return reinterpret_cast<const float*>(src);
  const auto* half = reinterpret_cast<const std::uint16_t*>(src);
  if (dtype == Dtype::kBf16) {
    for (std::size_t i = 0; i < count; ++i) scratch[i] = f32_of_bf16(half[i]);
  } else {
    for (std::size_t i = 0; i < count; ++i) scratch[i] = f32_of_f16(half[i]);
  }
  return scratch;
}

}  // namespace precis::kernels
