// Expected attention (policies.md 2.8, D11): the softmax over tokens of the log of what a query of
// the pushed mean and covariance would weigh them by, mu'.k/sqrt(d) + k^T Sigma' k/(2 d).
#include <cmath>
#include <limits>

#include "kernels/common/isa.h"
#include "kernels/common/segment_shape.h"
#include "kernels/score/quadratic_forms.h"
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
  // By tile registers, instead of both:
  const float* linear;          // [group, whole_tiles(dim, amx::kBlock)], 2 sqrt(d) mu
  const std::uint16_t* packed;  // [group, packed_form_size(dim)]
  float* logits;                // [group] rows of count, stride apart
  std::size_t stride;
  float* norms;  // [count], ||v||_2
};

// ||v||_2 of the task's tokens.
PRECIS_INLINE void find_value_lengths(const ExpectedTask& task) {
  const std::size_t row_bytes = task.dim * dtype_size_bytes(task.dtype);
  std::vector<float> scratch(task.dim);
  for (std::size_t t = 0; t < task.count; ++t) {
    const float* v = widen(task.dtype, task.values + t * row_bytes, task.dim, scratch.data());
    task.norms[t] = std::sqrt(dot(v, v, task.dim));
  }
}

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
  find_value_lengths(task);
}

// The logit is (k^T Sigma' k + 2 sqrt(d) mu'.k) / (2 d).
PRECIS_INLINE void expected_tile_logits(const ExpectedTask& task) {
  const amx::TileScope tiles;
  const std::size_t dim = task.dim, row_bytes = dim * dtype_size_bytes(task.dtype);
  FormVectors keys(dim);
  AlignedArray<float> forms(task.group * amx::kBlock);
  for (std::size_t first = 0; first < task.count; first += amx::kBlock) {
    const std::size_t count = std::min(amx::kBlock, task.count - first);
    keys.load(task.keys + first * row_bytes, count);
    keys.forms<true>(task.packed, task.linear, task.group, task.keys + (first + count) * row_bytes,
                     forms.data());
    for (std::size_t g = 0; g < task.group; ++g) {
      float* logits = task.logits + g * task.stride + first;
      const float* of_head = forms.data() + g * amx::kBlock;
      for (std::size_t i = 0; i < count; ++i) {
        logits[i] = of_head[i] / (2 * static_cast<float>(dim));
      }
    }
  }
  find_value_lengths(task);
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

// [num_q_heads, whole_tiles(dim, amx::kBlock)].
std::vector<float> linear_terms(const LayerInput& input) {
  const std::size_t dim = input.keys.head_dim, width = whole_tiles(dim, amx::kBlock);
  const float scale = 2 * std::sqrt(static_cast<float>(dim));
  std::vector<float> out(input.num_q_heads * width);
  for (std::size_t i = 0; i < input.query_mean.size(); ++i) {
    out[i / dim * width + i % dim] = scale * input.query_mean[i];
  }
  return out;
}

// Fills logits [num_q_heads, n] and norms [num_kv_heads, n].
void find_logits(const CpuContext& context, const LayerInput& input, float* logits, float* norms) {
  const std::uint32_t n = input.num_tokens(), group = input.group();
  const std::size_t dim = input.keys.head_dim, chunks = (n + kChunkTokens - 1) / kChunkTokens;
  const bool tiles = context.isa == Isa::kAmx && input.keys.dtype == Dtype::kBf16;
  // As large as the pushed statistics, whatever the number of tokens.
  const auto packed =
      packed_forms(context, tiles ? input.query_covariance : std::span<const float>(), dim);
  const auto covariances =
      padded_matrices(tiles ? std::span<const float>() : input.query_covariance, dim);
  const auto linear = linear_terms(input);
  const auto means = grouped_means(input);
  const auto body =
      tiles ? for_amx<&expected_tile_logits>() : for_isa<&expected_logits>(context.isa);
  context.pool.parallel_for(input.num_kv_heads() * chunks, [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i / chunks);
    const auto first = static_cast<std::uint32_t>(i % chunks * kChunkTokens);
    const std::size_t q_head = std::size_t{head} * group;
    ExpectedTask task{};
    task.keys = input.keys.row(head, first);
    task.values = input.values.row(head, first);
    task.dtype = input.keys.dtype;
    task.count = std::min(kChunkTokens, n - first);
    task.dim = dim;
    task.group = group;
    task.means = means[head].data();
    task.linear = linear.data() + q_head * whole_tiles(dim, amx::kBlock);
    if (tiles) task.packed = packed.data() + q_head * packed_form_size(dim);
    if (!tiles) task.covariances = covariances.data() + q_head * whole_tiles(dim, kTileRows) * dim;
    task.logits = logits + q_head * n + first;
    task.stride = n;
    task.norms = norms + std::size_t{head} * n + first;
    body(task);
  });
}

}  // namespace

void score_expected_attention_cpu(const CpuContext& context, const Recipe& recipe,
                                  const LayerInput& input, std::span<float> scores) {
  const std::uint32_t n = input.num_tokens(), group = input.group();
  const std::uint32_t sinks = SegmentShape::of(recipe, input.layer, input.begin, n).sinks;
  std::vector<float> logits(std::size_t{input.num_q_heads} * n), norms(scores.size());
  find_logits(context, input, logits.data(), norms.data());
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
