// Pass 1 over a chunk of tokens: each row's part of its softmax. Only for loops that isa.h
// compiles.
#pragma once

#include "kernels/score/attention/attention_blocks.h"

namespace precis::kernels {

// Part of a row's softmax: the sum of exp2(scaled logit - reference). 0 if the row sees nothing.
struct RowStats {
  float reference = 0;
  float sum = 0;
};

// Pass 1 over a chunk of tokens: fills stats[rows.last - rows.first] for this chunk alone. The
// reference is the largest logit of the first few tokens. In most chunks no logit exceeds it so
// much that an f32 sum overflows. If one does, the true maximum is found and the sum computed
// again.
template <typename Way>
PRECIS_INLINE void chunk_stats(const HeadTask& task, Range rows, Range tokens, RowStats* stats) {
  constexpr float kLargestSum = 1e37f;
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  const std::size_t count = rows.last - rows.first, padded = whole_tiles(count, kBlockRows);
  AlignedArray<float> parts(padded * Way::kPerRow), reference(padded, 0.0f);
  Range sample{tokens.first, std::min<std::size_t>(tokens.last, tokens.first + kBlockTokens)};
  for (;;) {
    std::fill(parts.data(), parts.data() + padded * Way::kPerRow, kNothing);
    for_blocks<typename Way::Products>(
        task, rows, sample, typename Way::Largest{task.exp_scale, rows.first, parts.data()});
    for (std::size_t r = 0; r < count; ++r) {
      const float* of_row = parts.data() + r * Way::kPerRow;
      const float largest = *std::max_element(of_row, of_row + Way::kPerRow);
      reference[r] = largest > kNothing ? largest : 0.0f;
    }
    std::fill(parts.data(), parts.data() + padded * Way::kPerRow, 0.0f);
    for_blocks<typename Way::Products>(
        task, rows, tokens,
        typename Way::Sums{task.exp_scale, rows.first, reference.data(), parts.data()});
    bool held = true;
    for (std::size_t r = 0; r < count; ++r) {
      const float* of_row = parts.data() + r * Way::kPerRow;
      stats[r] = {reference[r], Way::kPerRow == 1 ? *of_row : sum_lanes(load_lanes(of_row))};
      held = held && stats[r].sum < kLargestSum;
    }
    if (held || sample.last == tokens.last) return;
    sample = tokens;
  }
}

}  // namespace precis::kernels
