// Softmaxes that are computed piece by piece. Only for kernel sources.
#pragma once

#include "kernels/common/device_code.cuh"
#include "kernels/score/attention/window_attention_launch_cuda.h"

namespace precis::kernels {

inline constexpr float kMinusInfinity = -__builtin_huge_valf();

// The largest of some logits, and the sum of e^(logit - largest). -infinity and 0 for no logits.
struct Extremes {
  float largest = kMinusInfinity, sum = 0;
};

__device__ inline Extremes together(const Extremes& a, const Extremes& b) {
  const float largest = fmaxf(a.largest, b.largest);
  if (largest == kMinusInfinity) return {};
  return {largest, a.sum * exp_f32(a.largest - largest) + b.sum * exp_f32(b.largest - largest)};
}

// Stores a row's softmax over one span; if there is only one span, its log-sum-exp directly.
__device__ inline void keep_stats(const WindowLaunch& l, std::uint64_t row, std::uint32_t span,
                                  const Extremes& e) {
  if (l.num_spans == 1) {
    l.work.lse[row] = e.largest + logf(e.sum);
    return;
  }
  l.work.largest[row * l.num_spans + span] = e.largest;
  l.work.sum[row * l.num_spans + span] = e.sum;
}

}  // namespace precis::kernels
