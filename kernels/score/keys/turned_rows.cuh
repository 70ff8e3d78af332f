// Rows of K in registers without their RoPE. Only for kernel sources.
#pragma once

#include "kernels/score/keys/key_scores_cuda.h"
#include "kernels/score/keys/rows.cuh"

namespace precis::kernels {

// Loads the key of token `token` of `num_tokens`, which is row `row`, and undoes its RoPE; zeros
// after the last token. The other element of a pair is elsewhere in the row, which is in cache by
// then.
template <int kEach, int kUnits>
__device__ void load_key(const RowsDevice& rows, const TurnsDevice& turns, std::uint32_t num_tokens,
                         std::uint64_t row, std::uint32_t token, RowPart<kEach, kUnits>& part) {
  const bool inside = token < num_tokens;
  part.load(rows, row, inside);
  const std::uint32_t pairs = turns.pairs;
  if (pairs == 0 || !inside) return;
  const std::uint32_t size = turns.block_tokens;
  const float* block = turns.blocks + std::uint64_t{token / size} * 2 * pairs;
  const float* step = turns.steps + std::uint64_t{token % size} * 2 * pairs;
  part.each(rows, [&](std::uint32_t c, float& x) {
    if (c >= 2 * pairs) return;
    const std::uint32_t pair = c % pairs;
    const float cosine = block[pair] * step[pair] - block[pairs + pair] * step[pairs + pair];
    const float sine = block[pairs + pair] * step[pair] + block[pair] * step[pairs + pair];
    const std::uint32_t partner = c < pairs ? c + pairs : pair;
    const float y = element(rows.dtype, rows.data, row * rows.dim + partner);
    x = x * cosine + (c < pairs ? y : -y) * sine;
  });
}

}  // namespace precis::kernels
