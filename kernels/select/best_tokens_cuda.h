// The CUDA implementation of best_tokens.h, over a batch of heads. Includes no CUDA header.
#pragma once

#include <cstdint>

#include "kernels/common/device.h"

namespace precis::kernels {

// Device pointers.
struct BestTokensDevice {
  const float* scores;  // [num_heads, stride]
  std::uint32_t num_heads, stride;
  std::uint32_t first, last;    // tokens [first, last) of every head are ranked
  const std::uint32_t* limits;  // [num_heads], at most last - first of each head; null: all
  std::uint32_t* order;         // output, [num_heads, order_stride], written from order_first on
  std::uint32_t order_first, order_stride;
};

// 4 B per token that is ranked.
std::size_t best_tokens_workspace_bytes(const BestTokensDevice& task);

// order[h][order_first ..] = the limits[h] best tokens by (score desc, token asc), D1's order.
// Enqueues on `stream`; neither allocates nor waits. Uses a block of threads for every kSelectTile
// tokens of a head.
Status launch_best_tokens(const BestTokensDevice& task, void* workspace, Stream& stream);

}  // namespace precis::kernels
