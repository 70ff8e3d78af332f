// LagKV and LocalKV on the CPU (policies.md 2.15). One work item is one partition of one head: its
// tokens are normalised by channel ranges, those of the partition behind it or its own; a softmax
// of their spread over channels scores them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/common/isa.h"
#include "kernels/common/lanes.h"
#include "kernels/common/segment_shape.h"
#include "kernels/score/partitions_op.h"
#include "kernels/score/score.h"
#include "kernels/select/select_op.h"

namespace precis::kernels {
namespace {

// low[c], range[c] over `count` rows.
PRECIS_INLINE void channel_ranges(Dtype dtype, const std::byte* rows, std::size_t count,
                                  std::size_t dim, float* scratch, float* low, float* range) {
  float* high = range;
  std::fill(low, low + dim, std::numeric_limits<float>::infinity());
  std::fill(high, high + dim, -std::numeric_limits<float>::infinity());
  for (std::size_t t = 0; t < count; ++t) {
    const float* x = widen(dtype, rows + t * dim * dtype_size_bytes(dtype), dim, scratch);
    for (std::size_t c = 0; c < dim; ++c) {
      low[c] = x[c] < low[c] ? x[c] : low[c];
      high[c] = x[c] > high[c] ? x[c] : high[c];
    }
  }
  for (std::size_t c = 0; c < dim; ++c) range[c] = lag_range(low[c], high[c]);
}

// Unbiased standard deviation over the channels of one normalised row; 0 for a single channel.
PRECIS_INLINE float row_spread(const float* x, const float* low, const float* range,
                               std::size_t dim, float* normalised) {
  for (std::size_t c = 0; c < dim; ++c) normalised[c] = (x[c] - low[c]) / range[c];
  const float mean = sum(normalised, dim) / static_cast<float>(dim);
  for (std::size_t c = 0; c < dim; ++c) normalised[c] -= mean;
  return dim > 1 ? std::sqrt(dot(normalised, normalised, dim) / static_cast<float>(dim - 1)) : 0.0f;
}

// Adds to scores[lag] the softmax of the rows' spreads in the ranges of `ranged`, lag rows too.
PRECIS_INLINE void add_partition(Dtype dtype, const std::byte* rows, const std::byte* ranged,
                                 std::size_t lag, std::size_t dim, float* scratch, float* scores) {
  const std::size_t row_bytes = dim * dtype_size_bytes(dtype);
  float *low = scratch, *range = low + dim, *row = range + dim, *spreads = row + 2 * dim;
  channel_ranges(dtype, ranged, lag, dim, row, low, range);
  float largest = 0;
  for (std::size_t t = 0; t < lag; ++t) {
    const float* x = widen(dtype, rows + t * row_bytes, dim, row);
    spreads[t] = row_spread(x, low, range, dim, row + dim);
    largest = std::max(largest, spreads[t]);
  }
  for (std::size_t t = 0; t < lag; ++t) spreads[t] = exp_f32(spreads[t] - largest);
  const float total = sum(spreads, lag);
  for (std::size_t t = 0; t < lag; ++t) scores[t] += spreads[t] / total;
}

// kvpress 0.5.5 without cross_scoring: a token's rank within its partition, ascending, over lag.
void to_kvpress_ranks(float* scores, std::uint32_t lag) {
  std::vector<std::uint32_t> ascending(lag);
  std::iota(ascending.begin(), ascending.end(), 0u);
  std::stable_sort(ascending.begin(), ascending.end(), [&](std::uint32_t a, std::uint32_t b) {
    return score_rank(scores[a]) < score_rank(scores[b]);
  });
  for (std::uint32_t rank = 0; rank < lag; ++rank) {
    scores[ascending[rank]] = static_cast<float>(rank) / static_cast<float>(lag);
  }
}

}  // namespace

void score_partitions_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                          std::span<float> scores) {
  std::fill(scores.begin(), scores.end(), std::numeric_limits<float>::infinity());
  const SegmentShape shape = SegmentShape::of(recipe, input.layer, input.begin, input.num_tokens());
  if (!shape.has_scored_partitions()) return;
  const std::size_t scored = shape.num_partitions() - 1;
  const std::size_t dim = input.keys.head_dim;
  const std::uint32_t ahead = recipe.scorer == Scorer::kLagkv ? shape.lag : 0;
  const auto body = for_isa<&add_partition>(context.isa);
  context.pool.parallel_for(input.num_kv_heads() * scored, [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i / scored);
    const auto first = static_cast<std::uint32_t>(shape.sinks + i % scored * shape.lag);
    float* out = &scores[std::size_t{head} * input.num_tokens() + first];
    std::fill(out, out + shape.lag, 0.0f);
    std::vector<float> scratch(4 * dim + shape.lag);
    for (const HeadsView* view : {&input.keys, &input.values}) {
      body(view->dtype, view->row(head, first), view->row(head, first + ahead), shape.lag, dim,
           scratch.data(), out);
    }
    if (recipe.lag_kvpress_ranks) to_kvpress_ranks(out, shape.lag);
  });
}

}  // namespace precis::kernels
