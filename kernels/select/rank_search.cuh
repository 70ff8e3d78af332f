// The rank of the limit-th best of many scores, by radix. Only for kernel sources, in blocks of
// kSelectThreads.
#pragma once

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"
#include "kernels/select/select_op.h"

namespace precis::kernels {

inline constexpr std::uint32_t kBins = 256, kDigits = 4;
static_assert(kSelectThreads % kWarp == 0 && kSelectThreads >= kBins);

// In shared memory.
struct RankSearch {
  std::uint32_t totals[kBins];
  std::uint32_t prefix, left;
};

// Better scores have lower ranks.
__device__ inline std::uint32_t rank_of(const float* scores, std::uint32_t token) {
  return ~score_rank(scores[token]);
}
__device__ inline std::uint32_t digit_of(std::uint32_t rank, std::uint32_t digit) {
  return rank >> digit * 8 & (kBins - 1);
}

// Replaces each of s.totals with the sum of the totals before it. Every thread must call it.
__device__ inline void sum_totals(RankSearch& s) {
  __syncthreads();
  if (threadIdx.x < kWarp) {  // one warp, a run of bins per lane
    constexpr std::uint32_t kEach = kBins / kWarp;
    std::uint32_t own = 0;
    for (std::uint32_t i = 0; i < kEach; ++i) own += s.totals[threadIdx.x * kEach + i];
    std::uint32_t before = own;
    for (std::uint32_t step = 1; step < kWarp; step *= 2) {
      const std::uint32_t other = __shfl_up_sync(kWholeWarp, before, step);
      if (threadIdx.x >= step) before += other;
    }
    before -= own;
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const std::uint32_t count = s.totals[threadIdx.x * kEach + i];
      s.totals[threadIdx.x * kEach + i] = before;
      before += count;
    }
  }
  __syncthreads();
}

// Sets s.prefix to the rank of the limit-th best score of the head, and s.left to how many scores
// of that rank are among the best. From the highest digit down, finds the digit value at which the
// count reaches the limit. Every thread must call it.
__device__ inline void find_last_rank(const float* scores, std::uint32_t first, std::uint32_t last,
                                      std::uint32_t limit, RankSearch& s) {
  std::uint32_t prefix = 0, left = limit;
  for (std::uint32_t digit = kDigits; digit-- > 0;) {
    if (threadIdx.x < kBins) s.totals[threadIdx.x] = 0;
    __syncthreads();
    const std::uint32_t known = digit == kDigits - 1 ? 0 : 0xffffffffu << (digit + 1) * 8;
    for (std::uint32_t t = first + threadIdx.x; t < last; t += kSelectThreads) {
      const std::uint32_t rank = rank_of(scores, t);
      if ((rank & known) == prefix) atomicAdd(&s.totals[digit_of(rank, digit)], 1u);
    }
    __syncthreads();
    const std::uint32_t count = threadIdx.x < kBins ? s.totals[threadIdx.x] : 0;
    sum_totals(s);
    if (threadIdx.x < kBins) {
      const std::uint32_t before = s.totals[threadIdx.x];
      if (before < left && left <= before + count) {  // true in exactly one bin
        s.prefix = prefix | threadIdx.x << digit * 8;
        s.left = left - before;
      }
    }
    __syncthreads();
    prefix = s.prefix;
    left = s.left;
    __syncthreads();
  }
}

}  // namespace precis::kernels
