#include "kernels/score/value_norms.h"

#include <cmath>

#include "kernels/common/isa.h"
#include "kernels/score/tile.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kChunkTokens = 256;  // one work item; its values are held as f32
constexpr std::size_t kGramColumns = 256;    // of W_O at once

// Some tokens of one KV head and the projections of the query heads that share it.
struct NormTask {
  const std::byte* values;  // [count, dim]
  Dtype dtype;
  std::size_t count, dim, group;
  const std::byte* weights;  // [group, dim, width] of weights_dtype
  std::size_t width;
  Dtype weights_dtype;
  const float* grams;  // [group, whole_tiles(dim), dim]
  float* norms;        // [count]
};

// tile[c * kTileTokens + i] = weights[c][first + i]: columns of W_O stand where tokens do
// elsewhere.
PRECIS_INLINE void load_weights(const NormTask& task, const std::byte* weights, std::size_t first,
                                float* tile) {
  const std::size_t count = std::min(kTileTokens, task.width - first);
  const std::size_t size = dtype_size_bytes(task.weights_dtype);
  float scratch[kTileTokens];
  for (std::size_t c = 0; c < task.dim; ++c) {
    const float* row =
        widen(task.weights_dtype, weights + (c * task.width + first) * size, count, scratch);
    std::copy(row, row + count, tile + c * kTileTokens);
    std::fill(tile + c * kTileTokens + count, tile + (c + 1) * kTileTokens, 0.0f);
  }
}

PRECIS_INLINE void l1_exact_norms(const NormTask& task) {
  const std::size_t dim = task.dim, rows = whole_tiles(task.count, kTileRows);
  const std::size_t row_bytes = dim * dtype_size_bytes(task.dtype);
  std::vector<float> values(rows * dim), scratch(dim), tile(dim * kTileTokens), sums(rows * kLanes);
  for (std::size_t t = 0; t < task.count; ++t) {
    const float* v = widen(task.dtype, task.values + t * row_bytes, dim, scratch.data());
    std::copy(v, v + dim, values.data() + t * dim);
  }
  float products[kTileRows][kTileTokens];
  const std::size_t head_bytes = dim * task.width * dtype_size_bytes(task.weights_dtype);
  for (std::size_t g = 0; g < task.group; ++g) {
    for (std::size_t first = 0; first < task.width; first += kTileTokens) {
      load_weights(task, task.weights + g * head_bytes, first, tile.data());
      for (std::size_t r0 = 0; r0 < rows; r0 += kTileRows) {
        tile_products(values.data() + r0 * dim, tile.data(), dim, products);
        for (std::size_t r = 0; r < kTileRows; ++r) {
          float* sum = sums.data() + (r0 + r) * kLanes;
          for (std::size_t i = 0; i < kLanes; ++i) {
            sum[i] += std::fabs(products[r][i]) + std::fabs(products[r][i + kLanes]);
          }
        }
      }
    }
  }
  for (std::size_t t = 0; t < task.count; ++t) {
    task.norms[t] =
        sum_lanes(load_lanes(sums.data() + t * kLanes)) / static_cast<float>(task.group);
  }
}

PRECIS_INLINE void l2_gram_norms(const NormTask& task) {
  const std::size_t dim = task.dim, row_bytes = dim * dtype_size_bytes(task.dtype);
  const std::size_t gram_size = whole_tiles(dim, kTileRows) * dim;
  std::vector<float> scratch(dim), tile(dim * kTileTokens);
  float forms[kTileTokens];
  for (std::size_t first = 0; first < task.count; first += kTileTokens) {
    const std::size_t count = std::min(kTileTokens, task.count - first);
    load_tile(task.dtype, task.values + first * row_bytes, count, dim, scratch.data(), tile.data());
    float norms[kTileTokens] = {};
    for (std::size_t g = 0; g < task.group; ++g) {
      tile_quadratic_forms(task.grams + g * gram_size, tile.data(), dim, forms);
      for (std::size_t i = 0; i < kTileTokens; ++i) {
        norms[i] += std::sqrt(forms[i] > 0 ? forms[i] : 0.0f);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      task.norms[first + i] = norms[i] / static_cast<float>(task.group);
    }
  }
}

// gram[a][b] += weights[a] . weights[b] for b <= a; weights: [dim, count].
PRECIS_INLINE void add_gram(const float* weights, std::size_t dim, std::size_t count,
                            double* gram) {
  for (std::size_t a = 0; a < dim; ++a) {
    for (std::size_t b = 0; b <= a; ++b) {
      gram[a * dim + b] += dot(weights + a * count, weights + b * count, count);
    }
  }
}

}  // namespace

std::vector<float> value_norms(const CpuContext& context, ValueNorm norm, const LayerInput& input) {
  if (norm == ValueNorm::kVL1) return value_l1_norms(context, input.values);
  const std::uint32_t n = input.num_tokens(), group = input.group();
  const std::size_t dim = input.keys.head_dim, chunks = (n + kChunkTokens - 1) / kChunkTokens;
  const OutputProjection& o_proj = input.o_proj;
  PRECIS_CHECK(norm != ValueNorm::kL1Exact || o_proj.data != nullptr);
  PRECIS_CHECK(norm != ValueNorm::kL2Gram || !o_proj.gram.empty());
  const std::vector<float> grams =
      norm == ValueNorm::kL2Gram ? padded_matrices(o_proj.gram, dim) : std::vector<float>();
  std::vector<float> norms(std::size_t{input.num_kv_heads()} * n);
  const auto body = norm == ValueNorm::kL1Exact ? for_isa<&l1_exact_norms>(context.isa)
                                                : for_isa<&l2_gram_norms>(context.isa);
  context.pool.parallel_for(input.num_kv_heads() * chunks, [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i / chunks);
    const auto first = static_cast<std::uint32_t>(i % chunks * kChunkTokens);
    NormTask task{};
    task.values = input.values.row(head, first);
    task.dtype = input.values.dtype;
    task.count = std::min(kChunkTokens, n - first);
    task.dim = dim;
    task.group = group;
    task.width = o_proj.width;
    task.weights_dtype = o_proj.dtype;
    const std::size_t q_head = std::size_t{head} * group;
    if (norm == ValueNorm::kL1Exact) {
      task.weights = o_proj.data + q_head * dim * o_proj.width * dtype_size_bytes(o_proj.dtype);
    }
    if (norm == ValueNorm::kL2Gram) {
      task.grams = grams.data() + q_head * whole_tiles(dim, kTileRows) * dim;
    }
    task.norms = norms.data() + std::size_t{head} * n + first;
    body(task);
  });
  return norms;
}

std::vector<float> gram_matrices(const OutputProjection& o_proj, std::uint32_t num_q_heads,
                                 std::uint32_t head_dim) {
  const std::size_t dim = head_dim, size = dtype_size_bytes(o_proj.dtype);
  std::vector<float> grams(num_q_heads * dim * dim);
  std::vector<float> weights(dim * kGramColumns), scratch(kGramColumns);
  const auto body = for_isa<&add_gram>(detect_isa());
  for (std::uint32_t h = 0; h < num_q_heads; ++h) {
    std::vector<double> gram(dim * dim);
    for (std::size_t first = 0; first < o_proj.width; first += kGramColumns) {
      const std::size_t count = std::min(kGramColumns, o_proj.width - first);
      for (std::size_t c = 0; c < dim; ++c) {
        const std::byte* at = o_proj.data + ((h * dim + c) * o_proj.width + first) * size;
        const float* row = widen(o_proj.dtype, at, count, scratch.data());
        std::copy(row, row + count, weights.data() + c * count);
      }
      body(weights.data(), dim, count, gram.data());
    }
    for (std::size_t a = 0; a < dim; ++a) {
      for (std::size_t b = 0; b < dim; ++b) {
        grams[(h * dim + a) * dim + b] =
            static_cast<float>(gram[std::max(a, b) * dim + std::min(a, b)]);
      }
    }
  }
  return grams;
}

}  // namespace precis::kernels
