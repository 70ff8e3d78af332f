// Pass 2 turns a block's logits into weights, and adds them up over rows or stores them. Only for
// loops that isa.h compiles.
#pragma once

#include "kernels/score/attention/attention_blocks.h"

namespace precis::kernels {

// The weights of 16 tokens. An exact reference is never far below the logit; the bound keeps a
// wrong reference from overflowing (AttentionOp::weight).
template <typename Products>
PRECIS_INLINE Lanes weights(const HeadTask& task, const float* logits, std::size_t row) {
  constexpr float kLimit = 115.415604f;  // 80 log2(e)
  const Lanes x = load_lanes(logits) * task.exp_scale - task.reference[row];
  return Products::exp2(Products::at_most(kLimit, x)) * task.share[row];
}

// AttentionOp::row_added() of 16 columns.
struct Plus {
  PRECIS_INLINE Lanes operator()(Lanes sum, Lanes x) const { return sum + x; }
};
struct PlusSquare {
  PRECIS_INLINE Lanes operator()(Lanes sum, Lanes x) const { return sum + x * x; }
};
struct Larger {
  PRECIS_INLINE Lanes operator()(Lanes sum, Lanes x) const { return larger(x, sum); }
};

// Weights reduced over rows, per query head of the group.
template <typename Products>
struct AddWeights {
  const HeadTask& task;
  std::size_t first_token, width;
  float* sums;  // [group, width], tokens from first_token on
  template <typename Add>
  PRECIS_INLINE void each(const float* logits, std::size_t row, std::size_t token,
                          std::size_t piece, const Add& add) const {
    float* out = sums + (token - first_token);
    std::size_t g = (row + piece * kPieceRows) % task.op.group;
    for (std::size_t r = piece * kPieceRows; r < (piece + 1) * kPieceRows; ++r) {
      float* sum = out + g * width;
      const float* of_row = logits + r * kBlockTokens;
      store_lanes(sum, add(load_lanes(sum), weights<Products>(task, of_row, row + r)));
      store_lanes(sum + kLanes,
                  add(load_lanes(sum + kLanes), weights<Products>(task, of_row + kLanes, row + r)));
      g = g + 1 == task.op.group ? 0 : g + 1;
    }
  }
  PRECIS_INLINE void operator()(const float* logits, std::size_t row, std::size_t token,
                                std::size_t piece) const {
    switch (task.op.row_reduce) {
      case RowReduce::kMax: return each(logits, row, token, piece, Larger{});
      case RowReduce::kSumOfSquares: return each(logits, row, token, piece, PlusSquare{});
      default: return each(logits, row, token, piece, Plus{});
    }
  }
};

// Stores each weight.
template <typename Products>
struct StoreWeights {
  const HeadTask& task;
  std::size_t first_row, first_token, width;
  float* out;  // [rows from first_row on, width], tokens from first_token on
  PRECIS_INLINE void operator()(const float* logits, std::size_t row, std::size_t token,
                                std::size_t piece) const {
    for (std::size_t r = piece * kPieceRows; r < (piece + 1) * kPieceRows; ++r) {
      float* to = out + (row - first_row + r) * width + (token - first_token);
      store_lanes(to, weights<Products>(task, logits + r * kBlockTokens, row + r));
      store_lanes(to + kLanes,
                  weights<Products>(task, logits + r * kBlockTokens + kLanes, row + r));
    }
  }
};

}  // namespace precis::kernels
