// knorm, keydiff and kvdiff on the CPU: memory-bound passes over K, and V's norms.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/isa.h"
#include "kernels/common/lanes.h"
#include "kernels/score/key_scores_op.h"
#include "kernels/score/score.h"
#include "kernels/score/unrotation.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kChunkTokens = 1024;  // one work item

// Rows [count, dim] of one head; turned back where `unrotation` is there, by `block` for the first.
struct Rows {
  const std::byte* data;
  Dtype dtype;
  std::size_t count, dim;
  const Unrotation* unrotation = nullptr;
  const float* block = nullptr;
  // `scratch`: [2 * dim].
  PRECIS_INLINE const float* row(std::size_t t, float* scratch) const {
    const float* x = widen(dtype, data + t * dim * dtype_size_bytes(dtype), dim, scratch);
    if (unrotation == nullptr) return x;
    turn_back(x, dim, unrotation->pairs(), block, unrotation->step(t), scratch + dim);
    return scratch + dim;
  }
};

PRECIS_INLINE void knorm_rows(const Rows& rows, float* scratch, float* scores) {
  for (std::size_t t = 0; t < rows.count; ++t) {
    const float* key = rows.row(t, scratch);
    scores[t] = -std::sqrt(dot(key, key, rows.dim));
  }
}

PRECIS_INLINE void add_unit_rows(const Rows& rows, float* scratch, float* sum) {
  for (std::size_t t = 0; t < rows.count; ++t) {
    const float* key = rows.row(t, scratch);
    const float inverse = 1.0f / guarded_norm(std::sqrt(dot(key, key, rows.dim)));
    for (std::size_t c = 0; c < rows.dim; ++c) sum[c] += key[c] * inverse;
  }
}

PRECIS_INLINE void keydiff_rows(const Rows& rows, const float* anchor, float* scratch,
                                float* scores) {
  const float anchor_norm = std::sqrt(dot(anchor, anchor, rows.dim));
  for (std::size_t t = 0; t < rows.count; ++t) {
    const float* key = rows.row(t, scratch);
    scores[t] =
        keydiff_score(dot(key, anchor, rows.dim), std::sqrt(dot(key, key, rows.dim)), anchor_norm);
  }
}

std::size_t num_chunks(const HeadsView& heads) {
  return (heads.num_tokens + kChunkTokens - 1) / kChunkTokens;
}

// fn(item, head, first token, rows) for every chunk of every head of `heads`, [num_heads, n, dim].
template <typename Fn>
void for_chunks(const CpuContext& context, const HeadsView& heads, const Unrotation* unrotation,
                const Fn& fn) {
  const std::size_t chunks = num_chunks(heads);
  context.pool.parallel_for(heads.num_heads * chunks, [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i / chunks);
    const auto first = static_cast<std::uint32_t>(i % chunks * kChunkTokens);
    const std::size_t count = std::min(kChunkTokens, heads.num_tokens - first);
    Rows rows{heads.row(head, first), heads.dtype, count, heads.head_dim};
    std::vector<float> block;
    if (unrotation != nullptr) {
      block = unrotation->turn_of(first);
      rows.unrotation = unrotation;
      rows.block = block.data();
    }
    fn(i, head, first, rows);
  });
}

// anchors: [num_kv_heads, head_dim], each head's mean unit key. Chunks are summed in f32, then over
// chunks in f64 in their order.
std::vector<float> mean_unit_keys(const CpuContext& context, const HeadsView& keys,
                                  const Unrotation* unrotation) {
  const std::size_t dim = keys.head_dim, chunks = num_chunks(keys);
  std::vector<float> partial(keys.num_heads * chunks * dim);
  const auto body = for_isa<&add_unit_rows>(context.isa);
  for_chunks(context, keys, unrotation,
             [&](std::size_t item, std::uint32_t, std::uint32_t, const Rows& rows) {
               std::vector<float> scratch(2 * dim);
               body(rows, scratch.data(), partial.data() + item * dim);
             });
  std::vector<float> anchors(keys.num_heads * dim);
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < chunks; ++k) sum += partial[(i / dim * chunks + k) * dim + i % dim];
    anchors[i] = static_cast<float>(sum / keys.num_tokens);
  }
  return anchors;
}

// scores[num_heads, n] = -||row||.
void negative_norms(const CpuContext& context, const HeadsView& heads, std::span<float> scores) {
  const auto body = for_isa<&knorm_rows>(context.isa);
  for_chunks(context, heads, nullptr,
             [&](std::size_t, std::uint32_t head, std::uint32_t first, const Rows& rows) {
               std::vector<float> scratch(2 * rows.dim);
               body(rows, scratch.data(), &scores[std::size_t{head} * heads.num_tokens + first]);
             });
}

void key_differences(const CpuContext& context, const HeadsView& keys, const Unrotation* unrotation,
                     std::span<float> scores) {
  const std::vector<float> anchors = mean_unit_keys(context, keys, unrotation);
  const auto body = for_isa<&keydiff_rows>(context.isa);
  for_chunks(context, keys, unrotation,
             [&](std::size_t, std::uint32_t head, std::uint32_t first, const Rows& rows) {
               std::vector<float> scratch(2 * rows.dim);
               body(rows, anchors.data() + head * rows.dim, scratch.data(),
                    &scores[std::size_t{head} * keys.num_tokens + first]);
             });
}

}  // namespace

void score_knorm_cpu(const CpuContext& context, const LayerInput& input, std::span<float> scores) {
  negative_norms(context, input.keys, scores);
}

void score_keydiff_cpu(const CpuContext& context, const LayerInput& input,
                       std::span<float> scores) {
  key_differences(context, input.keys, nullptr, scores);
}

void score_kvdiff_cpu(const CpuContext& context, const LayerInput& input, std::span<float> scores) {
  const Unrotation unrotation(input.rope_frequencies, std::min(kChunkTokens, input.num_tokens()));
  key_differences(context, input.keys, input.rope_frequencies.empty() ? nullptr : &unrotation,
                  scores);
  std::vector<float> norms(scores.size());
  negative_norms(context, input.values, norms);
  const std::size_t n = input.num_tokens();
  for (std::size_t first = 0; first < scores.size(); first += n) {
    double sum = 0;
    for (std::size_t t = first; t < first + n; ++t) sum -= norms[t];
    const auto mean = static_cast<float>(sum / static_cast<double>(n));
    for (std::size_t t = first; t < first + n; ++t) {
      scores[t] = kvdiff_score(scores[t], -norms[t], mean);
    }
  }
}

}  // namespace precis::kernels
