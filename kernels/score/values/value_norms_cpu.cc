#include "kernels/score/values/value_norms.h"

#include <cmath>

#include "kernels/common/amx.h"
#include "kernels/common/isa.h"
#include "kernels/score/quadratic_forms.h"
#include "kernels/score/tile.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kChunkTokens = 256;  // one work item; its values are held as f32
// l1_exact with tile registers: the bytes of values of one work item. As many as stay in the
// second-level cache, because W_O is packed again for each item. Together with the columns below,
// they are a thread's scratch memory.
constexpr std::size_t kTileChunkBytes = std::size_t{1} << 20;
// Columns of W_O that are packed at once: many, because its rows lie far apart, each in another
// page. kHotColumns of them are used at once, as many as stay in the first-level cache: 16 KiB at a
// head_dim of 128.
constexpr std::size_t kPackedColumns = 512;
constexpr std::size_t kHotColumns = 64;
static_assert(kPackedColumns % kHotColumns == 0 && kHotColumns % amx::kBlock == 0);
constexpr std::size_t kGramColumns = 256;  // of W_O at once

// Some tokens of one KV head and the projections of the query heads that share it.
struct NormTask {
  const std::byte* values;  // [count, dim]
  Dtype dtype;
  std::size_t count, dim, group;
  const std::byte* weights;  // [group, dim, width] of weights_dtype
  std::size_t width;
  Dtype weights_dtype;
  const float* grams;                 // [group, whole_tiles(dim), dim]
  const std::uint16_t* packed_grams;  // [group, packed_form_size(dim)]; with tile registers
  float* norms;                       // output, [count]
};

// tile[c * kTileTokens + i] = weights[c][first + i]: columns of W_O are used like tokens in
// load_tile().
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

// Packs columns [first, first + kPackedColumns) of one query head's W_O into panels, zero past the
// width.
PRECIS_INLINE void pack_weights(const NormTask& task, const std::uint16_t* weights,
                                std::size_t first, std::uint16_t* packed) {
  for (std::size_t c = 0; c < kPackedColumns; c += amx::kPanel) {
    const std::size_t at = first + c;
    const std::size_t count = at < task.width ? std::min(amx::kPanel, task.width - at) : 0;
    amx::pack_columns(weights + (count > 0 ? at : 0), task.width, count, task.dim,
                      packed + c / amx::kPanel * amx::panel_size(task.dim));
  }
}

// Adds the sums over columns of a block's |products| to sums[amx::kBlock][kLanes], lane by lane.
// Meanwhile prefetches a part of the next values.
struct AddMagnitudes {
  const float* products;
  float* sums;
  const std::uint16_t* next_values = nullptr;
  std::size_t fetched = 0;  // bf16 per piece
  PRECIS_INLINE void operator()(std::size_t piece) const {
    constexpr std::size_t kRows = amx::kBlock / amx::kPieces;
    for (std::size_t i = 0; i < fetched; i += amx::kStep) {
      __builtin_prefetch(next_values + piece * fetched + i);
    }
    const Words magnitude = Words{} + 0x7fffffffu;
    for (std::size_t t = piece * kRows; t < (piece + 1) * kRows; ++t) {
      const auto low = (Words)load_lanes(products + t * amx::kBlock) & magnitude;
      const auto high = (Words)load_lanes(products + t * amx::kBlock + kLanes) & magnitude;
      store_lanes(sums + t * kLanes, load_lanes(sums + t * kLanes) + ((Lanes)low + (Lanes)high));
    }
  }
};

// Prefetches the next stretch of W_O, a few lines with every block of the current stretch.
class WeightsAhead {
 public:
  PRECIS_INLINE WeightsAhead(const std::uint16_t* from, std::size_t stride, std::size_t columns,
                             std::size_t rows, std::size_t blocks)
      : from_(from),
        stride_(stride),
        per_row_((columns + amx::kStep - 1) / amx::kStep),
        lines_(rows * per_row_),
        per_block_(lines_ / blocks + 1) {}
  PRECIS_INLINE void fetch() {
    for (const std::size_t end = std::min(next_ + per_block_, lines_); next_ < end; ++next_) {
      __builtin_prefetch(from_ + next_ / per_row_ * stride_ + next_ % per_row_ * amx::kStep, 0, 2);
    }
  }

 private:
  const std::uint16_t* from_;
  std::size_t stride_, per_row_, lines_, per_block_, next_ = 0;
};

PRECIS_INLINE void l1_exact_tile_norms(const NormTask& task) {
  const amx::TileScope tiles;
  const std::size_t dim = task.dim, panel = amx::panel_size(dim), steps = amx::steps_of(dim);
  const std::size_t rows = whole_tiles(task.count, amx::kBlock);
  amx::Panels values(rows / amx::kPanel * panel), packed(kPackedColumns / amx::kPanel * panel);
  const auto* from = reinterpret_cast<const std::uint16_t*>(task.values);
  for (std::size_t t = 0; t < rows; t += amx::kPanel) {
    const std::size_t count = t < task.count ? std::min(amx::kPanel, task.count - t) : 0;
    amx::pack_left(from + t * dim, dim, count, dim, values.data() + t / amx::kPanel * panel);
  }
  AlignedArray<float> sums(rows * kLanes, 0.0f);
  alignas(64) float products[2][amx::kBlock * amx::kBlock] = {};
  // The next two panels are prefetched while kHotColumns pass over the current ones.
  const std::size_t fetched = 2 * panel / (kHotColumns / amx::kBlock * amx::kPieces);
  AddMagnitudes waiting{products[0], sums.data(), values.data(), fetched};
  const auto* weights = reinterpret_cast<const std::uint16_t*>(task.weights);
  const std::size_t stretches = (task.width + kPackedColumns - 1) / kPackedColumns;
  for (std::size_t i = 0; i < task.group * stretches; ++i) {
    const std::size_t first = i % stretches * kPackedColumns;
    pack_weights(task, weights + i / stretches * dim * task.width, first, packed.data());
    const std::size_t columns = std::min(kPackedColumns, task.width - first);
    const std::size_t next = std::min(i + 1, task.group * stretches - 1);
    WeightsAhead ahead(
        weights + next / stretches * dim * task.width + next % stretches * kPackedColumns,
        task.width, columns, dim,
        whole_tiles(columns, amx::kBlock) * rows / amx::kBlock / amx::kBlock);
    for (std::size_t hot = 0; hot < columns; hot += kHotColumns) {
      const std::size_t end = std::min(hot + kHotColumns, columns);
      for (std::size_t t = 0; t < rows; t += amx::kBlock) {
        const std::uint16_t* block = values.data() + t / amx::kPanel * panel;
        for (std::size_t c = hot; c < end; c += amx::kBlock) {
          float* made = products[waiting.products == products[0]];
          waiting.next_values =
              block + 2 * panel + (c - hot) / amx::kBlock * fetched * amx::kPieces;
          ahead.fetch();
          amx::multiply(block, packed.data() + c / amx::kPanel * panel, panel, 0, steps,
                        amx::NoParts{}, made, waiting);
          waiting.products = made;
          waiting.sums = sums.data() + t * kLanes;
        }
      }
    }
  }
  for (std::size_t piece = 0; piece < amx::kPieces; ++piece) waiting(piece);
  for (std::size_t t = 0; t < task.count; ++t) {
    task.norms[t] =
        sum_lanes(load_lanes(sums.data() + t * kLanes)) / static_cast<float>(task.group);
  }
}

PRECIS_INLINE void l2_gram_tile_norms(const NormTask& task) {
  const amx::TileScope tiles;
  FormVectors values(task.dim);
  const std::size_t row_bytes = task.dim * dtype_size_bytes(task.dtype);
  AlignedArray<float> forms(task.group * amx::kBlock);
  for (std::size_t first = 0; first < task.count; first += amx::kBlock) {
    const std::size_t count = std::min(amx::kBlock, task.count - first);
    values.load(task.values + first * row_bytes, count);
    values.forms<false>(task.packed_grams, nullptr, task.group,
                        task.values + (first + count) * row_bytes, forms.data());
    float norms[amx::kBlock] = {};
    for (std::size_t g = 0; g < task.group; ++g) {
      const float* of_head = forms.data() + g * amx::kBlock;
      for (std::size_t i = 0; i < amx::kBlock; ++i) {
        norms[i] += std::sqrt(of_head[i] > 0 ? of_head[i] : 0.0f);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      task.norms[first + i] = norms[i] / static_cast<float>(task.group);
    }
  }
}

// Whether tile registers compute the products: for bf16 alone, because f16 and f32 do not fit them.
bool by_tiles(ValueNorm norm, Isa isa, const LayerInput& input) {
  if (isa != Isa::kAmx || input.values.dtype != Dtype::kBf16) return false;
  return norm == ValueNorm::kL2Gram ||
         (norm == ValueNorm::kL1Exact && input.o_proj.dtype == Dtype::kBf16);
}

// As many whole blocks as fit kTileChunkBytes, at least one.
std::uint32_t tile_chunk_tokens(std::size_t dim) {
  const std::size_t row_bytes = whole_tiles(dim, amx::kStep) * sizeof(std::uint16_t);
  return static_cast<std::uint32_t>(
      std::max(kTileChunkBytes / row_bytes / amx::kBlock, std::size_t{1}) * amx::kBlock);
}

void (*body_of(ValueNorm norm, Isa isa, bool tiles))(const NormTask&) {
  if (norm == ValueNorm::kL1Exact) {
    return tiles ? for_avx512<&l1_exact_tile_norms>() : for_isa<&l1_exact_norms>(isa);
  }
  return tiles ? for_avx512<&l2_gram_tile_norms>() : for_isa<&l2_gram_norms>(isa);
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
  const OutputProjection& o_proj = input.o_proj;
  PRECIS_CHECK(norm != ValueNorm::kL1Exact || o_proj.data != nullptr);
  PRECIS_CHECK(norm != ValueNorm::kL2Gram || !o_proj.gram.empty());
  const bool tiles = by_tiles(norm, context.isa, input), gram = norm == ValueNorm::kL2Gram;
  const std::size_t dim = input.keys.head_dim;
  // Both as large as the f32 matrices, for any number of tokens.
  const std::vector<float> grams =
      gram && !tiles ? padded_matrices(o_proj.gram, dim) : std::vector<float>();
  const amx::Panels packed =
      packed_forms(context, gram && tiles ? o_proj.gram : std::span<const float>(), dim);
  std::vector<float> norms(std::size_t{input.num_kv_heads()} * n);
  const auto body = body_of(norm, context.isa, tiles);
  const std::uint32_t chunk = tiles && !gram ? tile_chunk_tokens(dim) : kChunkTokens;
  const std::size_t chunks = (n + chunk - 1) / chunk;
  context.pool.parallel_for(input.num_kv_heads() * chunks, [&](std::size_t i) {
    const auto head = static_cast<std::uint32_t>(i / chunks);
    const auto first = static_cast<std::uint32_t>(i % chunks * chunk);
    NormTask task{};
    task.values = input.values.row(head, first);
    task.dtype = input.values.dtype;
    task.count = std::min(chunk, n - first);
    task.dim = dim;
    task.group = group;
    task.width = o_proj.width;
    task.weights_dtype = o_proj.dtype;
    const std::size_t q_head = std::size_t{head} * group;
    if (norm == ValueNorm::kL1Exact) {
      task.weights = o_proj.data + q_head * dim * o_proj.width * dtype_size_bytes(o_proj.dtype);
    }
    if (gram && tiles) task.packed_grams = packed.data() + q_head * packed_form_size(dim);
    if (gram && !tiles) task.grams = grams.data() + q_head * whole_tiles(dim, kTileRows) * dim;
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
