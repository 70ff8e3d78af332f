// Codes rows on CUDA (precis/row_code.h). A warp codes one row; element i is in lane i % 32. Only
// for kernel sources.
#pragma once

#include "kernels/common/device_code.cuh"
#include "kernels/encode/row_code_op.h"
#include "precis/limits.h"

namespace precis::kernels {

// The transform of blocks of `block` elements, as in row_code_vectors.h. kSlots: the elements of a
// lane, a power of two.
template <std::uint32_t kSlots>
__device__ void rotate(std::uint32_t block, float (&x)[kSlots]) {
#pragma unroll
  for (std::uint32_t step = kSlots / 2; step > 0; step /= 2) {
    if (step * kWarp >= block) continue;
#pragma unroll
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      if ((i & step) != 0) continue;
      const float a = x[i], b = x[i + step];
      x[i] = a + b;
      x[i + step] = a - b;
    }
  }
#pragma unroll
  for (std::uint32_t step = kWarp / 2; step > 0; step /= 2) {
    if (step >= block) continue;
#pragma unroll
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      const float other = __shfl_xor_sync(kWholeWarp, x[i], static_cast<int>(step));
      x[i] = (threadIdx.x & step) != 0 ? other - x[i] : x[i] + other;
    }
  }
}

// Returns whether the row decodes to finite elements. `codes`: memory of this warp, for the codes
// of a row. Every thread of the warp must call it.
template <std::uint32_t kSlots>
__device__ bool code_row_of(const RowForm& form, const std::byte* row, std::byte* coded,
                            std::uint8_t* codes) {
  const std::uint32_t lane = threadIdx.x % kWarp, dim = form.head_dim;
  float x[kSlots];
#pragma unroll
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    const std::uint32_t at = i * kWarp + lane;
    // Zeros behind the row are in blocks of their own, because a block divides a row.
    x[i] = at < dim ? element(form.dtype, row, at) : 0.0f;
  }
  rotate(rotated_block(form.code, dim), x);
  std::uint32_t largest = 0;  // by its bits, which are in the order of magnitudes
#pragma unroll
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    largest = max(largest, bits_of_f32(x[i]) & 0x7fffffffu);
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    largest = max(largest, __shfl_xor_sync(kWholeWarp, largest, step));
  }
  const std::uint16_t step = step_bits(form.code, f32_of_bits(largest));
  const float inverse = inverse_step(step);
#pragma unroll
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    const std::uint32_t at = i * kWarp + lane;
    if (at < dim) {
      codes[at] = static_cast<std::uint8_t>(bits_of_f32(x[i] * inverse + kRoundingAddend));
    }
  }
  __syncwarp();
  if (lane < kRowStepBytes) coded[lane] = static_cast<std::byte>(step >> 8 * lane);
  coded += kRowStepBytes;
  for (std::uint32_t i = lane; i < form.bytes() - kRowStepBytes; i += kWarp) {
    coded[i] = static_cast<std::byte>(packed_byte(form.code, dim, codes, i));
  }
  __syncwarp();  // before the next row's codes
  return decodes_to_finite(form, step);
}

__device__ inline bool code_row(const RowForm& form, const std::byte* row, std::byte* coded,
                                std::uint8_t* codes) {
  static_assert(limits::kHeadDimMax <= 32 * kWarp);
  const std::uint32_t slots = ceil_div(form.head_dim, kWarp);
  if (slots <= 2) return code_row_of<2>(form, row, coded, codes);
  if (slots <= 4) return code_row_of<4>(form, row, coded, codes);
  if (slots <= 8) return code_row_of<8>(form, row, coded, codes);
  return code_row_of<32>(form, row, coded, codes);
}

}  // namespace precis::kernels
