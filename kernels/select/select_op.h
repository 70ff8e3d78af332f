// The only total order on scores (D1): NaN below -inf below every number below +inf; -0.0 equals
// 0.0. All code that ranks, merges or ties scores uses score_rank.
#pragma once

#include <cstdint>

#include "kernels/common/element_op.h"

namespace precis::kernels {

// Higher is better; equal ranks are ties.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint32_t score_rank(float score) {
  const std::uint32_t bits = bits_of_f32(score);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kF32ExponentBits) return 0;  // NaN
  if (magnitude == 0) return 0x80000000u;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Ascending keys are in retention order: score descending, then token ascending.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint64_t retention_key(float score, std::uint32_t token) {
  return std::uint64_t{~score_rank(score)} << 32 | token;
}

}  // namespace precis::kernels
