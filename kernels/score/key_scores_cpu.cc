// knorm and keydiff on the CPU: memory-bound passes over K.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/isa.h"
#include "kernels/common/lanes.h"
#include "kernels/score/key_scores_op.h"
#include "kernels/score/score.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kChunkTokens = 1024;  // one work item

// Rows [count, dim] of one head.
struct Rows {
  const std::byte* data;
  Dtype dtype;
  std::size_t count, dim;
  PRECIS_INLINE const float* row(std::size_t t, float* scratch) const {
    return widen(dtype, data + t * dim * dtype_size_bytes(dtype), dim, scratch);
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

std::size_t num_chunks(const LayerInput& input) {
  return (input.num_tokens() + kChunkTokens - 1) / kChunkTokens;
}

// fn(item, head, first token, rows) for every chunk of every head.
template <typename Fn>
void for_chunks(const CpuContext& context, const LayerInput& input, const Fn& fn) {
  const std::size_t chunks = num_chunks(input);
  context.pool.parallel_for(input.num_kv_heads() * chunks, [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i / chunks);
    const auto first = static_cast<std::uint32_t>(i % chunks * kChunkTokens);
    const std::size_t count = std::min(kChunkTokens, input.num_tokens() - first);
    fn(i, head, first,
       Rows{input.keys.row(head, first), input.keys.dtype, count, input.keys.head_dim});
  });
}

// anchors: [num_kv_heads, head_dim], each head's mean unit key. Chunks are summed in f32, then over
// chunks in f64 in their order.
std::vector<float> mean_unit_keys(const CpuContext& context, const LayerInput& input) {
  const std::size_t dim = input.keys.head_dim, chunks = num_chunks(input);
  std::vector<float> partial(input.num_kv_heads() * chunks * dim);
  const auto body = for_isa<&add_unit_rows>(context.isa);
  for_chunks(context, input, [&](std::size_t item, std::uint32_t, std::uint32_t, const Rows& rows) {
    std::vector<float> scratch(dim);
    body(rows, scratch.data(), partial.data() + item * dim);
  });
  std::vector<float> anchors(input.num_kv_heads() * dim);
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < chunks; ++k) sum += partial[(i / dim * chunks + k) * dim + i % dim];
    anchors[i] = static_cast<float>(sum / input.num_tokens());
  }
  return anchors;
}

}  // namespace

void score_knorm_cpu(const CpuContext& context, const LayerInput& input, std::span<float> scores) {
  const auto body = for_isa<&knorm_rows>(context.isa);
  for_chunks(context, input,
             [&](std::size_t, std::uint32_t head, std::uint32_t first, const Rows& rows) {
               std::vector<float> scratch(rows.dim);
               body(rows, scratch.data(), &scores[std::size_t{head} * input.num_tokens() + first]);
             });
}

void score_keydiff_cpu(const CpuContext& context, const LayerInput& input,
                       std::span<float> scores) {
  const std::vector<float> anchors = mean_unit_keys(context, input);
  const auto body = for_isa<&keydiff_rows>(context.isa);
  for_chunks(context, input,
             [&](std::size_t, std::uint32_t head, std::uint32_t first, const Rows& rows) {
               std::vector<float> scratch(rows.dim);
               body(rows, anchors.data() + head * rows.dim, scratch.data(),
                    &scores[std::size_t{head} * input.num_tokens() + first]);
             });
}

}  // namespace precis::kernels
