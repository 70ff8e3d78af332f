// Expected attention (policies/scores.md, "Expected attention"; D11): the softmax over tokens of
// mu'.k/sqrt(d) + k^T Sigma' k/(2 d), the expected log-weight under queries of the pushed mean and
// covariance.
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
  // With tile registers, instead of means and covariances:
  const float* linear;          // [group, whole_tiles(dim, amx::kBlock)], 2 sqrt(d) mu
  const std::uint16_t* packed;  // [group, packed_form_size(dim)]
  float* logits;                // [group] rows of count, stride apart
  std::size_t stride;
  float* norms;  // [count], ||v||_2
};

// |v||_2 of the task's tokens.
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

// Replaces logits with their softmax.
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

// Computes one KV head after another, each on all cores: the logits of all query heads together
// would take a sixteenth of the memory of K if four query heads share a KV head of 128 channels.
class ExpectedAttention {
 public:
  ExpectedAttention(const CpuContext& context, const Recipe& recipe, const LayerInput& input)
      : context_(context),
        input_(input),
        tiles_(context.isa == Isa::kAmx && input.keys.dtype == Dtype::kBf16),
        sinks_(SegmentShape::of(recipe, input.layer, input.begin, input.num_tokens()).sinks),
        epsilon_(static_cast<float>(recipe.ea_epsilon_ppm / 1e6)),
        weighs_values_(recipe.ea_value_norm),
        packed_(packed_forms(context, tiles_ ? input.query_covariance : std::span<const float>(),
                             dim())),
        covariances_(
            padded_matrices(tiles_ ? std::span<const float>() : input.query_covariance, dim())),
        linear_(linear_terms(input)),
        means_(grouped_means(input)),
        logits_(std::size_t{input.group()} * input.num_tokens()),
        norms_(input.num_tokens()) {}

  void score_head(std::uint32_t head, float* scores) {
    const std::size_t n = input_.num_tokens();
    find_logits(head);
    const auto normalise = for_isa<&softmax>(context_.isa);
    context_.pool.parallel_for(input_.group(), [&](std::size_t g) {
      normalise(logits_.data() + g * n + sinks_, n - sinks_);
    });
    for_chunks([&](std::size_t first, std::size_t last) { finish(first, last, scores); });
  }

 private:
  std::size_t dim() const { return input_.keys.head_dim; }

  template <typename Fn>
  void for_chunks(const Fn& fn) {
    const std::size_t n = input_.num_tokens();
    context_.pool.parallel_for((n + kChunkTokens - 1) / kChunkTokens, [&](std::size_t i) {
      fn(i * kChunkTokens, std::min(n, (i + 1) * kChunkTokens));
    });
  }

  void find_logits(std::uint32_t head) {
    const auto body =
        tiles_ ? for_avx512<&expected_tile_logits>() : for_isa<&expected_logits>(context_.isa);
    const std::size_t q_head = std::size_t{head} * input_.group();
    for_chunks([&](std::size_t first, std::size_t last) {
      const auto token = static_cast<std::uint32_t>(first);
      ExpectedTask task{};
      task.keys = input_.keys.row(head, token);
      task.values = input_.values.row(head, token);
      task.dtype = input_.keys.dtype;
      task.count = last - first;
      task.dim = dim();
      task.group = input_.group();
      task.means = means_[head].data();
      task.linear = linear_.data() + q_head * whole_tiles(dim(), amx::kBlock);
      if (tiles_) {
        task.packed = packed_.data() + q_head * packed_form_size(dim());
      } else {
        task.covariances = covariances_.data() + q_head * whole_tiles(dim(), kTileRows) * dim();
      }
      task.logits = logits_.data() + first;
      task.stride = input_.num_tokens();
      task.norms = norms_.data() + first;
      body(task);
    });
  }

  void finish(std::size_t first, std::size_t last, float* scores) const {
    const std::size_t n = input_.num_tokens(), group = input_.group();
    for (std::size_t t = first; t < last; ++t) {
      float sum = 0;
      for (std::size_t g = 0; g < group; ++g) sum += logits_[g * n + t];
      const float mean = sum / static_cast<float>(group);
      scores[t] = weighs_values_ ? (mean + epsilon_) * norms_[t] : mean;
      if (t < sinks_) scores[t] = std::numeric_limits<float>::infinity();
    }
  }

  const CpuContext& context_;
  const LayerInput& input_;
  const bool tiles_;
  const std::uint32_t sinks_;
  const float epsilon_;
  const bool weighs_values_;
  // As large as the pushed statistics, for any number of tokens.
  const amx::Panels packed_;
  const std::vector<float> covariances_, linear_;
  const std::vector<std::vector<float>> means_;
  std::vector<float> logits_, norms_;  // [group, n], [n], of one KV head
};

}  // namespace

void score_expected_attention_cpu(const CpuContext& context, const Recipe& recipe,
                                  const LayerInput& input, std::span<float> scores) {
  ExpectedAttention attention(context, recipe, input);
  for (std::uint32_t head = 0; head < input.num_kv_heads(); ++head) {
    attention.score_head(head, scores.data() + std::size_t{head} * input.num_tokens());
  }
}

}  // namespace precis::kernels
