// Softmaxes that are found piece by piece. Only for sources of kernels.
#pragma once

#include "kernels/common/device_code.cuh"

namespace precis::kernels {

inline constexpr float kMinusInfinity = -__builtin_huge_valf();

// Of some logits: the largest, and the sum of e^(logit - largest). Of none: -infinity and 0.
struct Extremes {
  float largest = kMinusInfinity, sum = 0;
};

__device__ inline Extremes together(const Extremes& a, const Extremes& b) {
  const float largest = fmaxf(a.largest, b.largest);
  if (largest == kMinusInfinity) return {};
  return {largest, a.sum * exp_f32(a.largest - largest) + b.sum * exp_f32(b.largest - largest)};
}

}  // namespace precis::kernels
