// Logits of observing rows and a tile of keys on tensor cores, shared by the kernels that use
// tensor cores. Only for kernel sources.
#pragma once

#include "kernels/common/mma.cuh"
#include "kernels/score/attention/window_attention_launch_cuda.h"

namespace precis::kernels {

// Channels 2i and 2i + 1 in word i. The padding keeps the lanes of a warp in different banks.
template <int kSteps>
struct KeyTile {
  alignas(16) std::uint32_t words[kWindowMmaTileTokens][kSteps * 8 + 4];

  // Loads tokens from `first` on, zeros past the last. All threads of the block must call it; they
  // all see the tile afterwards.
  __device__ void load(const WindowLaunch& l, std::uint32_t head, std::uint32_t first) {
    constexpr std::uint32_t kUnits = kSteps * 2;  // of 16 bytes
    const std::uint32_t units = l.task.head_dim / 8;
    const auto* keys = static_cast<const uint4*>(l.task.keys);
    const std::uint64_t row = std::uint64_t{head} * l.task.num_tokens + first;
    for (std::uint32_t i = threadIdx.x; i < kWindowMmaTileTokens * kUnits; i += blockDim.x) {
      const std::uint32_t t = i / kUnits, unit = i % kUnits;
      const bool inside = unit < units && first + t < l.task.num_tokens;
      *reinterpret_cast<uint4*>(&words[t][unit * 4]) =
          inside ? keys[(row + t) * units + unit] : uint4{0, 0, 0, 0};
    }
    __syncthreads();
  }
};

// 16 rows of queries.
template <int kSteps>
struct QueryRows {
  std::uint32_t words[kSteps][4];

  // query_row(r): the row of task.queries that becomes row r; kNone for zeros.
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  template <typename QueryRow>
  __device__ void load(const WindowLaunch& l, const QueryRow& query_row) {
    const std::uint32_t lane = threadIdx.x % kWarp, pairs = l.task.head_dim / 2;
    const auto* queries = static_cast<const std::uint32_t*>(l.task.queries);
    const std::uint64_t rows[2] = {query_row(lane / 4), query_row(lane / 4 + 8)};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (std::uint32_t i = 0; i < 4; ++i) {
        const std::uint32_t pair = static_cast<std::uint32_t>(s) * 8 + i / 2 * 4 + lane % 4;
        const std::uint64_t row = rows[i % 2];
        words[s][i] = row != kNone && pair < pairs ? queries[row * pairs + pair] : 0;
      }
    }
  }
};

// z[n][..]: logits of these rows and of tokens from + 8 n .. of the tile; mma.cuh says which of
// them a lane holds.
template <int kSteps, std::uint32_t kTiles>
__device__ void logits(const KeyTile<kSteps>& keys, const QueryRows<kSteps>& queries, float scale,
                       std::uint32_t from, float (&z)[kTiles][4]) {
  const std::uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
  for (std::uint32_t n = 0; n < kTiles; ++n) {
    float sums[4] = {};
    const std::uint32_t* token = keys.words[from + n * 8 + lane / 4];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const std::uint32_t b[2] = {token[s * 8 + lane % 4], token[s * 8 + lane % 4 + 4]};
      multiply_add_bf16(sums, queries.words[s], b);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) z[n][i] = sums[i] * scale;
  }
}

// Calls fn.operator()<kSteps>(), steps of 16 channels, for heads that takes_window_mma().
template <typename Fn>
Status for_steps(const WindowLaunch& l, const Fn& fn) {
  if (l.task.head_dim <= 64) return fn.template operator()<4>();
  if (l.task.head_dim <= 128) return fn.template operator()<8>();
  return fn.template operator()<16>();
}

}  // namespace precis::kernels
