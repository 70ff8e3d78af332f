// Arithmetic of the window-attention score, shared by CPU and CUDA (policies.md 1.2, 1.3, D4, D5).
//
// Of the m pushed queries the last w observe: row i stands at token n - w + i. A row's weights are
// a softmax over all keys it sees, tokens 0 to n - w + i; the first n - w columns, the "past", are
// then taken without renormalising, and reduced over rows, pooled over tokens and reduced over the
// group of query heads that share a KV head.
#pragma once

#include <cstdint>

#include "kernels/common/element_op.h"
#include "precis/recipe.h"

namespace precis::kernels {

struct WindowAttentionOp {
  std::uint32_t window = 0;  // rows per query head
  std::uint32_t past = 0;    // columns scored
  std::uint32_t group = 0;   // query heads per KV head
  std::uint32_t kernel = 1;
  Pool pool = Pool::kAvg;
  Reduce row_reduce = Reduce::kMean, group_reduce = Reduce::kMean;
  PoolOrder pool_order = PoolOrder::kRowsGroupPool;

  static WindowAttentionOp of(const Recipe& recipe, std::uint32_t num_tokens, std::uint32_t pushed,
                              std::uint32_t group) {
    WindowAttentionOp op;
    op.window = recipe.window < pushed ? recipe.window : pushed;
    op.past = num_tokens - op.window;
    op.group = group;
    op.kernel = recipe.kernel;
    op.pool = recipe.pool;
    op.row_reduce = recipe.row_reduce;
    op.group_reduce = recipe.group_reduce;
    op.pool_order = recipe.pool_order;
    return op;
  }

  // Row i sees the first visible(i) tokens.
  PRECIS_HOST_DEVICE PRECIS_INLINE std::uint32_t visible(std::uint32_t row) const {
    return past + row + 1;
  }

  // A weight from a logit and its row's log-sum-exp. An exact lse is never below the logit; the
  // bound keeps a wrong one from overflowing.
  PRECIS_HOST_DEVICE PRECIS_INLINE static float weight(float logit, float lse) {
    const float x = logit - lse;
    return exp_f32(x < 80.0f ? x : 80.0f);
  }

  // Reductions begin at 0: weights are not negative.
  PRECIS_HOST_DEVICE PRECIS_INLINE static float reduced(Reduce reduce, float sum, float x) {
    if (reduce == Reduce::kMax) return x > sum ? x : sum;
    return sum + x;
  }
  PRECIS_HOST_DEVICE PRECIS_INLINE static float finished(Reduce reduce, float sum,
                                                         std::uint32_t count) {
    return reduce == Reduce::kMean ? sum / static_cast<float>(count) : sum;
  }

  // Pools column(token) around `token`. Windows are cut at the past's ends: average pooling divides
  // by the whole kernel all the same, so borders are attenuated.
  template <typename Column>
  PRECIS_HOST_DEVICE PRECIS_INLINE float pooled(const Column& column, std::uint32_t token) const {
    const std::uint32_t half = kernel / 2;
    const std::uint32_t first = token > half ? token - half : 0;
    const std::uint32_t last = past - token > half ? token + half : past - 1;
    float sum = 0;
    for (std::uint32_t t = first; t <= last; ++t) {
      sum = reduced(pool == Pool::kMax ? Reduce::kMax : Reduce::kSum, sum, column(t));
    }
    return pool == Pool::kMax ? sum : sum / static_cast<float>(kernel);
  }

  // The score of a past token from `rows`: [group, past], reduced over rows but not yet finished.
  PRECIS_HOST_DEVICE PRECIS_INLINE float score(const float* rows, std::uint32_t token) const {
    const auto of_head = [this, rows](std::uint32_t g, std::uint32_t t) {
      return finished(row_reduce, rows[static_cast<std::uint64_t>(g) * past + t], window);
    };
    const auto of_group = [this](const auto& value) {
      float sum = 0;
      for (std::uint32_t g = 0; g < group; ++g) sum = reduced(group_reduce, sum, value(g));
      return finished(group_reduce, sum, group);
    };
    if (pool_order == PoolOrder::kRowsGroupPool) {
      return pooled(
          [&](std::uint32_t t) { return of_group([&](std::uint32_t g) { return of_head(g, t); }); },
          token);
    }
    return of_group([&](std::uint32_t g) {
      return pooled([&](std::uint32_t t) { return of_head(g, t); }, token);
    });
  }
};

}  // namespace precis::kernels
