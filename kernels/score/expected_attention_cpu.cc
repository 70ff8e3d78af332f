// Expected attention (policies.md 2.8, D11): the softmax over tokens of the log of what a query of
// the pushed mean and covariance would weigh them by, mu'.k/sqrt(d) + k^T Sigma' k/(2 d).
#include <cmath>
#include <limits>

#include "kernels/common/isa.h"
#include "kernels/common/segment_shape.h"
#include "kernels/score/score.h"
#include "kernels/score/tile.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kChunkTokens = 256;  // one work item

// Some tokens of one KV head and the statistics of the query heads that share it.
struct ExpectedTask {
  const std::byte *keys, *values;  // [count, dim]
  Dtype dtype;
  std::size_t count, dim, group;
  const float* means;        // [whole_tiles(group), dim]
  const float* covariances;  // [group, whole_tiles(dim), dim]
  float* logits;             // [group] rows of count, stride apart
  std::size_t stride;
  float* norms;  // [count], ||v||_2
};

PRECIS_INLINE void expected_logits(const ExpectedTask& task) {
  const std::size_t dim = task.dim, row_bytes = dim * dtype_size_bytes(task.dtype);
  const std::size_t matrix_size = whole_tiles(dim, kTileRows) * dim;
  const auto d = static_cast<float>(dim);
  std::vector<float> scratch(dim), tile(dim * kTileTokens);
  float along[kTileRows][kTileTokens], forms[kTileTokens];
  for (std::size_t first = 0; first < task.count; first += kTileTokens) {
    const std::size_t count = std::min(kTileTokens, task.count - first);
    load_tile(task.dtype, task.keys + first * row_bytes, count, dim, scratch.data(), tile.data());
    for (std::size_t g = 0; g < task.group; ++g) {
      if (g % kTileRows == 0) tile_products(task.means + g * dim, tile.data(), dim, along);
      tile_quadratic_forms(task.covariances + g * matrix_size, tile.data(), dim, forms);
      for (std::size_t i = 0; i < count; ++i) {
        task.logits[g * task.stride + first + i] =
            along[g % kTileRows][i] / std::sqrt(d) + forms[i] / (2 * d);
      }
    }
  }
  for (std::size_t t = 0; t < task.count; ++t) {
    const float* v = widen(task.dtype, task.values + t * row_bytes, dim, scratch.data());
    task.norms[t] = std::sqrt(dot(v, v, dim));
  }
}

// Turns logits into their softmax.
PRECIS_INLINE void softmax(float* x, std::size_t count) {
  float largest = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
  for (std::size_t i = 0; i < count; ++i) x[i] = exp_f32(x[i] - largest);
  double total = 0;
  for (std::size_t i = 0; i < count; ++i) total += x[i];
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(x[i] / total);
}

// [num_kv_heads][whole_tiles(group), dim].
std::vector<std::vector<float>> grouped_means(const LayerInput& input) {
  const std::size_t dim = input.keys.head_dim, group = input.group();
  std::vector<std::vector<float>> means;
  for (std::size_t h = 0; h < input.num_kv_heads(); ++h) {
    const auto of_group = input.query_mean.subspan(h * group * dim, group * dim);
    means.emplace_back(of_group.begin(), of_group.end());
    means.back().resize(whole_tiles(group, kTileRows) * dim);
  }
  return means;
}

}  // namespace

void score_expected_attention_cpu(const CpuContext& context, const Recipe& recipe,
                                  const LayerInput& input, std::span<float> scores) {
  const std::uint32_t n = input.num_tokens(), group = input.group();
  const std::size_t dim = input.keys.head_dim, chunks = (n + kChunkTokens - 1) / kChunkTokens;
  const std::uint32_t sinks = SegmentShape::of(recipe, input.layer, input.begin, n).sinks;
  const std::vector<float> covariances = padded_matrices(input.query_covariance, dim);
  const auto means = grouped_means(input);
  std::vector<float> logits(std::size_t{input.num_q_heads} * n), norms(scores.size());

  const auto body = for_isa<&expected_logits>(context.isa);
  context.pool.parallel_for(input.num_kv_heads() * chunks, [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i / chunks);
    const auto first = static_cast<std::uint32_t>(i % chunks * kChunkTokens);
    body({input.keys.row(head, first), input.values.row(head, first), input.keys.dtype,
          std::min(kChunkTokens, n - first), dim, group, means[head].data(),
          covariances.data() + std::size_t{head} * group * whole_tiles(dim, kTileRows) * dim,
          logits.data() + std::size_t{head} * group * n + first, n,
          norms.data() + std::size_t{head} * n + first});
  });
  const auto normalise = for_isa<&softmax>(context.isa);
  context.pool.parallel_for(input.num_q_heads, [&](std::size_t q_head) {
    normalise(logits.data() + q_head * n + sinks, n - sinks);
  });
  const auto epsilon = static_cast<float>(recipe.ea_epsilon_ppm / 1e6);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::size_t head = i / n, token = i % n;
    if (token < sinks) {
      scores[i] = std::numeric_limits<float>::infinity();
      continue;
    }
    float sum = 0;
    for (std::size_t g = 0; g < group; ++g) sum += logits[(head * group + g) * n + token];
    const float mean = sum / static_cast<float>(group);
    scores[i] = recipe.ea_value_norm ? (mean + epsilon) * norms[i] : mean;
  }
}

}  // namespace precis::kernels
