// Products of small matrices on tensor cores. Only for kernel sources.
#pragma once

#include "kernels/common/device_code.cuh"

namespace precis::kernels {

// A warp's d += a b for 16 x 16 times 16 x 8 of bf16, sums in f32 (PTX mma.sync.m16n8k16). Lane
// 4 g + t holds two elements in a word, the first in the lower half:
//   a  rows g, g + 8, g, g + 8 at columns 2t, 2t, 2t + 8, 2t + 8 and the next of each
//   b  rows 2t, 2t + 8 and the next of each, at column g
//   d  row g at columns 2t, 2t + 1; row g + 8 at the same columns
__device__ inline void multiply_add_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
#if defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  cuda_emulator::multiply_add_bf16(d, a, b);
#endif
}

// The nearest bf16 of a finite x, ties to even.
__device__ inline std::uint16_t bf16_of_f32(float x) {
  const std::uint32_t bits = bits_of_f32(x);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// Returns the bf16 nearest to x and subtracts it from x. Three calls in a row extract all 24 bits
// of an f32.
__device__ inline std::uint16_t take_bf16(float& x) {
  const std::uint16_t part = bf16_of_f32(x);
  x -= f32_of_bf16(part);
  return part;
}

__device__ inline std::uint32_t pair_of(std::uint16_t low, std::uint16_t high) {
  return low | std::uint32_t{high} << 16;
}

}  // namespace precis::kernels
