// Arithmetic of the attention scorers, shared by CPU and CUDA (policies/scores.md, "Attention of
// observation queries"; D4, D5, D18).
//
// The last `rows` of the m pushed queries are the observing rows. A row's weights are a softmax
// over all keys that it sees. Only the weights of the first `columns` tokens are used, without
// renormalising: they are reduced over rows, pooled over tokens and reduced over the group of query
// heads that share a KV head, in the recipe's order. The scorers differ here only in which columns
// are used and seen:
//   window attention and similar  the "past": the tokens before those of the rows
//   h2o, observed_mean            every token; a row adds nothing to the tokens after its own
//   kvzip                         every token, and every row sees all of them
#pragma once

#include <cstdint>

#include "kernels/common/element_op.h"
#include "precis/recipe.h"

namespace precis::kernels {

// From the sum and the sum of squares of `count` numbers. In double, because the variance is the
// small difference of the two. 0 for a single number.
PRECIS_HOST_DEVICE PRECIS_INLINE double unbiased_variance(double sum, double square,
                                                          std::uint32_t count) {
  const double spread = square - sum * sum / count;
  return count > 1 && spread > 0 ? spread / (count - 1) : 0;
}

// A ln(A + 1e-10), as in CAKE.
PRECIS_HOST_DEVICE PRECIS_INLINE double entropy_term(float weight) {
  return static_cast<double>(weight * log_f32(weight + 1e-10f));
}

struct AttentionOp {
  std::uint32_t rows = 0;     // observing queries per query head
  std::uint32_t columns = 0;  // tokens scored, from the first on
  std::uint32_t group = 0;    // query heads per KV head
  std::uint32_t num_tokens = 0;
  bool behind = false;  // whether the queries stand after the segment
  std::uint32_t kernel = 1;
  Pool pool = Pool::kAvg;
  RowReduce row_reduce = RowReduce::kMean;
  Reduce group_reduce = Reduce::kMean;
  PoolOrder pool_order = PoolOrder::kRowsGroupPool;
  double gamma = 0;  // kMeanVariance

  static AttentionOp of(const Recipe& recipe, std::uint32_t num_tokens, std::uint32_t pushed,
                        std::uint32_t group) {
    AttentionOp op;
    op.rows = recipe.window != 0 && recipe.window < pushed ? recipe.window : pushed;
    op.columns = protects_window(recipe.scorer) ? num_tokens - op.rows : num_tokens;
    op.group = group;
    op.num_tokens = num_tokens;
    op.behind = recipe.scorer == Scorer::kKvzip;
    op.kernel = recipe.kernel;
    op.pool = recipe.pool;
    op.row_reduce = recipe.row_reduce;
    op.group_reduce = recipe.group_reduce;
    op.pool_order = recipe.pool_order;
    op.gamma = recipe.gamma_ppm / 1e6;
    return op;
  }

  // Whether rows are pooled one by one, before they are reduced.
  PRECIS_HOST_DEVICE PRECIS_INLINE bool pools_rows() const {
    return pool_order == PoolOrder::kPoolRowsGroup || pool_order == PoolOrder::kPoolGroupRows;
  }

  // Row i sees the first visible(i) tokens.
  PRECIS_HOST_DEVICE PRECIS_INLINE std::uint32_t visible(std::uint32_t row) const {
    return behind ? num_tokens : num_tokens - rows + row + 1;
  }
  // How many rows see a token.
  PRECIS_HOST_DEVICE PRECIS_INLINE std::uint32_t seen_by(std::uint32_t token) const {
    return behind || num_tokens - token > rows ? rows : num_tokens - token;
  }

  // The first row that sees a token.
  PRECIS_HOST_DEVICE PRECIS_INLINE std::uint32_t first_row(std::uint32_t token) const {
    return rows - seen_by(token);
  }

  // A weight from a logit and its row's log-sum-exp. An exact lse is never below the logit; the
  // bound keeps a wrong lse from overflowing.
  PRECIS_HOST_DEVICE PRECIS_INLINE static float weight(float logit, float lse) {
    const float x = logit - lse;
    return exp_f32(x < 80.0f ? x : 80.0f);
  }

  // Adds a weight to a column. Reductions begin at 0, because weights are not negative.
  // kMeanVariance needs two sums, which the caller keeps.
  PRECIS_HOST_DEVICE PRECIS_INLINE static float row_added(RowReduce reduce, float sum, float x) {
    if (reduce == RowReduce::kMax) return x > sum ? x : sum;
    return sum + (reduce == RowReduce::kSumOfSquares ? x * x : x);
  }
  PRECIS_HOST_DEVICE PRECIS_INLINE static float row_finished(RowReduce reduce, float sum,
                                                             std::uint32_t count) {
    return reduce == RowReduce::kMean ? sum / static_cast<float>(count) : sum;
  }
  PRECIS_HOST_DEVICE PRECIS_INLINE static float added(Reduce reduce, float sum, float x) {
    if (reduce == Reduce::kMax) return x > sum ? x : sum;
    return sum + x;
  }
  PRECIS_HOST_DEVICE PRECIS_INLINE static float finished(Reduce reduce, float sum,
                                                         std::uint32_t count) {
    return reduce == Reduce::kMean ? sum / static_cast<float>(count) : sum;
  }

  // Pools column(token) around `token`. Windows are cut off at the ends, but average pooling always
  // divides by the whole kernel, so borders are attenuated.
  template <typename Column>
  PRECIS_HOST_DEVICE PRECIS_INLINE float pooled(const Column& column, std::uint32_t token) const {
    const std::uint32_t half = kernel / 2;
    const std::uint32_t first = token > half ? token - half : 0;
    const std::uint32_t last = columns - token > half ? token + half : columns - 1;
    float sum = 0;
    for (std::uint32_t t = first; t <= last; ++t) {
      sum = added(pool == Pool::kMax ? Reduce::kMax : Reduce::kSum, sum, column(t));
    }
    return pool == Pool::kMax ? sum : sum / static_cast<float>(kernel);
  }

  // The score of a token from `reduced`: [group, columns], reduced over rows; under kPoolGroupRows
  // [columns], reduced over the group too.
  PRECIS_HOST_DEVICE PRECIS_INLINE float score(const float* reduced, std::uint32_t token) const {
    const auto of_head = [this, reduced](std::uint32_t g, std::uint32_t t) {
      return reduced[static_cast<std::uint64_t>(g) * columns + t];
    };
    const auto of_group = [this](const auto& value) {
      float sum = 0;
      for (std::uint32_t g = 0; g < group; ++g) sum = added(group_reduce, sum, value(g));
      return finished(group_reduce, sum, group);
    };
    switch (pool_order) {
      case PoolOrder::kRowsGroupPool:
        return pooled(
            [&](std::uint32_t t) {
              return of_group([&](std::uint32_t g) { return of_head(g, t); });
            },
            token);
      case PoolOrder::kRowsPoolGroup:
        return of_group([&](std::uint32_t g) {
          return pooled([&](std::uint32_t t) { return of_head(g, t); }, token);
        });
      case PoolOrder::kPoolRowsGroup:
        return of_group([&](std::uint32_t g) { return of_head(g, token); });
      case PoolOrder::kPoolGroupRows: break;
    }
    return of_head(0, token);
  }
};

}  // namespace precis::kernels
