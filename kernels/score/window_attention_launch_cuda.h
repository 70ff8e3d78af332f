// What the kernels of window attention share, plain and on tensor cores. Only for sources of
// kernels.
#pragma once

#include "kernels/score/window_attention_cuda.h"

namespace precis::kernels {

struct WindowWorkspace {
  float* tile_largest;  // [rows, tiles]
  float* tile_sum;      // [rows, tiles]
  float* lse;           // [rows]; rows = num_q_heads * window
  float* columns;       // [num_q_heads, past]
};

struct WindowLaunch {
  WindowAttentionDevice task;
  WindowWorkspace work;
  std::uint32_t tile_tokens, num_tiles;
  float scale;  // 1/sqrt(head_dim)
};

// The tensor cores' part: products of bf16 rows that are multiples of 16 bytes.
inline constexpr std::uint32_t kWindowMmaTileTokens = 64;
bool takes_window_mma(const WindowAttentionDevice& task);
Status launch_window_mma_stats(const WindowLaunch& launch, Stream& stream);    // tile_stats
Status launch_window_mma_columns(const WindowLaunch& launch, Stream& stream);  // columns

}  // namespace precis::kernels
