// Columns of attention scores whose rows are read one by one: rows are pooled before they are
// reduced, or reduced to a mean and a variance, or other results are needed besides scores
// (AttentionWants). One tile of weights is in shared memory at a time; a tile pools only the
// columns that are far enough from its ends.
//   row_masses   each row's mass before and after pooling, per span of tiles
//   row_scales   the quotient of the two (both kernels only if pooled rows keep their mass)
//   row_columns  columns reduced over rows and group, the mean, each tile's moments
//   row_claim    the layer's weight, from the moments of all tiles
#include <algorithm>

#include "kernels/score/attention/window_rows.cuh"

namespace precis::kernels {
namespace {

// A tile computes columns [first, last) and holds the weights of the tokens from `low` on.
struct TileColumns {
  std::uint32_t first, last, low;
};
PRECIS_HOST_DEVICE inline std::uint32_t columns_of_tile(const AttentionOp& op) {
  return op.pools_rows() ? kRowsTileTokens - (op.kernel - 1) : kRowsTileTokens;
}
__device__ TileColumns tile_columns(const AttentionOp& op, std::uint32_t tile) {
  const std::uint32_t width = columns_of_tile(op), first = tile * width;
  const std::uint32_t half = op.pools_rows() ? op.kernel / 2 : 0;
  return {first, min(op.columns, first + width), first > half ? first - half : 0};
}

template <typename Rows>
struct RowsShared {
  Rows rows;
  float weights[Rows::kHeld][kRowsTileTokens + 1];
  float pooled[Rows::kHeld][kRowsTileTokens + 1];  // the columns that the tile computes
  double moments[2][kRowsTileTokens];
};

static_assert(sizeof(RowsShared<MmaRows<16>>) <= 48 * 1024 &&
              sizeof(RowsShared<MmaRows<8>>) <= 48 * 1024);  // the most that launch() may request

// Fills s.pooled from s.weights. All threads of the block must call it; they all see the result.
template <typename Rows>
__device__ void pool_rows(const Slots& slots, std::uint32_t from, const TileColumns& tile,
                          bool scaled, RowsShared<Rows>& s) {
  for (std::uint32_t i = threadIdx.x; i < Rows::kHeld * kRowsTileTokens; i += kRowsThreads) {
    const std::uint32_t k = i / kRowsTileTokens, token = tile.first + i % kRowsTileTokens;
    if (from + k >= slots.count() || token >= tile.last) continue;
    const float* weights = s.weights[k];
    const float x =
        slots.l.task.op.pooled([&](std::uint32_t t) { return weights[t - tile.low]; }, token);
    const float scale = scaled ? slots.l.work.scales[slots.row(slots.at(from + k))] : 1.0f;
    s.pooled[k][token - tile.first] = x * scale;
  }
  __syncthreads();
}

std::uint32_t mass_span_tiles(const WindowLaunch& l) {
  const std::uint32_t tiles = std::max(1u, window_rows_tiles(l.task.op));
  return ceil_div(tiles, std::max(1u, std::min(tiles, l.num_spans / 2)));
}

// grid (spans of every Rows::kHeld slots, kv heads). A warp sums every eighth of the slots.
template <typename Rows>
__global__ void __launch_bounds__(kRowsThreads)
    row_masses(WindowLaunch l, std::uint32_t tiles, std::uint32_t span_tiles,
               std::uint32_t num_spans) {
  constexpr std::uint32_t kWarps = kRowsThreads / kWarp, kEach = Rows::kHeld / kWarps;
  auto& s = *shared_memory<RowsShared<Rows>>();
  const Slots slots{l, blockIdx.y};
  const std::uint32_t span = blockIdx.x % num_spans, from = blockIdx.x / num_spans * Rows::kHeld;
  const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  RowMasses masses[kEach] = {};
  const std::uint32_t end = min(tiles, (span + 1) * span_tiles);
  for (std::uint32_t i = span * span_tiles; i < end; ++i) {
    const TileColumns tile = tile_columns(l.task.op, i);
    s.rows.load(l, slots.head, tile.low);
    s.rows.fill(slots, from, tile.low, s.weights);
    pool_rows(slots, from, tile, false, s);
#pragma unroll
    for (std::uint32_t j = 0; j < kEach; ++j) {
      const std::uint32_t k = warp + j * kWarps;
      float before = 0, after = 0;
      for (std::uint32_t t = tile.first + lane; from + k < slots.count() && t < tile.last;
           t += kWarp) {
        before += s.weights[k][t - tile.low];
        after += s.pooled[k][t - tile.first];
      }
      for (int step = kWarp / 2; step > 0; step /= 2) {
        before += __shfl_xor_sync(kWholeWarp, before, step);
        after += __shfl_xor_sync(kWholeWarp, after, step);
      }
      masses[j].before += before;
      masses[j].after += after;
    }
    __syncthreads();
  }
#pragma unroll
  for (std::uint32_t j = 0; j < kEach; ++j) {
    const std::uint32_t slot = from + warp + j * kWarps;
    if (lane != 0 || slot >= slots.count()) continue;
    l.work.masses[slots.row(slots.at(slot)) * num_spans + span] = masses[j];
  }
}

// One thread per row, spans in order.
__global__ void row_scales(WindowLaunch l, std::uint32_t num_spans) {
  const std::uint64_t row = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= std::uint64_t{l.task.num_kv_heads} * l.task.op.group * l.task.op.rows) return;
  RowMasses all{};
  for (std::uint32_t i = 0; i < num_spans; ++i) {
    all.before += l.work.masses[row * num_spans + i].before;
    all.after += l.work.masses[row * num_spans + i].after;
  }
  l.work.scales[row] = all.after > 0 ? static_cast<float>(all.before / all.after) : 1.0f;
}

// The outputs of a pass over rows.
struct RowPass {
  bool columns, moments;
};

// The reduction of one column.
struct RowSum {
  float one = 0;
  double sum = 0, square = 0;  // for kMeanVariance
  __device__ void add(RowReduce reduce, float x) {
    if (reduce != RowReduce::kMeanVariance) {
      one = AttentionOp::row_added(reduce, one, x);
      return;
    }
    sum += x;
    square += static_cast<double>(x) * x;
  }
  __device__ float finished(const AttentionOp& op, std::uint32_t count) const {
    if (op.row_reduce != RowReduce::kMeanVariance) {
      return AttentionOp::row_finished(op.row_reduce, one, count);
    }
    return static_cast<float>(sum / count + op.gamma * unbiased_variance(sum, square, count));
  }
};

// One column, to which the slots of its KV head are added in order.
class Column {
 public:
  __device__ Column(const Slots& slots, const RowPass& pass, std::uint32_t token)
      : slots_(slots), pass_(pass), token_(token), seen_by_(slots.l.task.op.seen_by(token)) {}

  // `x`: the weight, pooled if rows are pooled; `weight`: the unpooled weight.
  __device__ void add(const Slot& slot, float x, float weight) {
    const AttentionOp& op = slots_.l.task.op;
    mean_ += weight;
    const bool seen = token_ < op.visible(slot.i);
    if (slots_.rows_outside()) {
      grouped_ = AttentionOp::added(op.group_reduce, slot.g == 0 ? 0.0f : grouped_, x);
      if (slot.g + 1 < op.group || !seen) return;
      rows_.add(op.row_reduce, AttentionOp::finished(op.group_reduce, grouped_, op.group));
      return;
    }
    if (slot.i == 0) rows_ = raw_ = {};
    if (seen) rows_.add(op.row_reduce, x);
    if (seen && pass_.moments) {
      raw_.add(RowReduce::kMeanVariance, weight);
      entropy_ -= entropy_term(weight);
    }
    if (slot.i + 1 == op.rows) finish_head(slot);
  }

  __device__ void store() const {
    const WindowLaunch& l = slots_.l;
    const AttentionOp& op = l.task.op;
    if (l.task.mean != nullptr) {
      l.task.mean[std::uint64_t{slots_.head} * l.task.num_tokens + token_] =
          mean_ / static_cast<float>(slots_.count());
    }
    if (!l.groups_columns()) return;
    l.work.columns[std::uint64_t{slots_.head} * op.columns + token_] =
        slots_.rows_outside() ? rows_.finished(op, seen_by_)
                              : AttentionOp::finished(op.group_reduce, grouped_, op.group);
  }
  __device__ TileMoments moments() const { return {entropy_, variance_}; }

 private:
  __device__ void finish_head(const Slot& slot) {
    const WindowLaunch& l = slots_.l;
    const AttentionOp& op = l.task.op;
    const float x = rows_.finished(op, seen_by_);
    grouped_ = AttentionOp::added(op.group_reduce, grouped_, x);
    variance_ += unbiased_variance(raw_.sum, raw_.square, seen_by_);
    if (l.groups_columns() || !pass_.columns) return;
    l.work.columns[slots_.q_head(slot) * op.columns + token_] = x;
  }

  const Slots& slots_;
  const RowPass& pass_;
  const std::uint32_t token_, seen_by_;
  RowSum rows_, raw_;  // of the current query head, or of the group
  float grouped_ = 0, mean_ = 0;
  double entropy_ = 0, variance_ = 0;
};

// grid (tiles of columns, kv heads).
template <typename Rows>
__global__ void __launch_bounds__(kRowsThreads) row_columns(WindowLaunch l, RowPass pass) {
  auto& s = *shared_memory<RowsShared<Rows>>();
  const AttentionOp& op = l.task.op;
  const Slots slots{l, blockIdx.y};
  const TileColumns tile = tile_columns(op, blockIdx.x);
  const std::uint32_t token = tile.first + threadIdx.x;
  Column column(slots, pass, min(token, tile.last - 1));
  s.rows.load(l, slots.head, tile.low);
  for (std::uint32_t from = 0; from < slots.count(); from += Rows::kHeld) {
    s.rows.fill(slots, from, tile.low, s.weights);
    if (op.pools_rows()) pool_rows(slots, from, tile, l.work.scales != nullptr, s);
    for (std::uint32_t k = 0; token < tile.last && k < min(Rows::kHeld, slots.count() - from);
         ++k) {
      const float weight = s.weights[k][token - tile.low];
      const float x = op.pools_rows() ? s.pooled[k][threadIdx.x] : weight;
      column.add(slots.at(from + k), x, weight);
    }
    __syncthreads();
  }
  if (token < tile.last && pass.columns) column.store();
  if (!pass.moments) return;
  if (threadIdx.x < kRowsTileTokens) {
    s.moments[0][threadIdx.x] = token < tile.last ? column.moments().entropy : 0.0;
    s.moments[1][threadIdx.x] = token < tile.last ? column.moments().variance : 0.0;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  TileMoments sum{};
  for (std::uint32_t t = 0; t < kRowsTileTokens; ++t) {
    sum.entropy += s.moments[0][t];
    sum.variance += s.moments[1][t];
  }
  l.work.moments[std::uint64_t{slots.head} * gridDim.x + blockIdx.x] = sum;
}

// One block. Each thread sums every blockDim.x-th tile, then the first thread adds up the threads'
// sums.
__global__ void row_claim(WindowLaunch l, std::uint64_t tiles) {
  auto* of_threads = shared_memory<TileMoments>();
  TileMoments sum{};
  for (std::uint64_t i = threadIdx.x; i < tiles; i += blockDim.x) {
    sum.entropy += l.work.moments[i].entropy;
    sum.variance += l.work.moments[i].variance;
  }
  of_threads[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (std::uint32_t t = 1; t < blockDim.x; ++t) {
    sum.entropy += of_threads[t].entropy;
    sum.variance += of_threads[t].variance;
  }
  *l.task.claim = l.task.powers.weight(sum.entropy, sum.variance);
}

Status launch_pass(const WindowLaunch& l, const RowPass& pass, Stream& stream) {
  return with_rows(l, [&]<typename Rows>() {
    return launch("window attention: row_columns", row_columns<Rows>,
                  dim3(window_rows_tiles(l.task.op), l.task.num_kv_heads), kRowsThreads,
                  sizeof(RowsShared<Rows>), stream, l, pass);
  });
}

// Whether moments need a pass of their own. Moments are per query head, so the rows of a query head
// must be consecutive.
bool moments_apart(const WindowLaunch& l) {
  return l.task.claims && l.task.op.pool_order == PoolOrder::kPoolGroupRows;
}
WindowLaunch by_query_heads(const WindowLaunch& l) {
  WindowLaunch other = l;
  other.task.op.pool_order = PoolOrder::kRowsGroupPool;
  return other;
}

}  // namespace

bool takes_window_rows(const WindowAttentionDevice& task) {
  return task.op.pools_rows() || task.op.row_reduce == RowReduce::kMeanVariance ||
         task.mean != nullptr || task.claims;
}

std::uint32_t window_rows_tiles(const AttentionOp& op) {
  return ceil_div(op.columns, columns_of_tile(op));
}

std::uint32_t window_rows_mass_spans(const WindowLaunch& l) {
  return ceil_div(std::max(1u, window_rows_tiles(l.task.op)), mass_span_tiles(l));
}

Status launch_window_row_scales(const WindowLaunch& l, Stream& stream) {
  const std::uint64_t rows = std::uint64_t{l.task.op.group} * l.task.op.rows;
  const std::uint32_t spans = window_rows_mass_spans(l);
  PRECIS_TRY(with_rows(l, [&]<typename Rows>() {
    return launch("window attention: row_masses", row_masses<Rows>,
                  dim3(spans * ceil_div(rows, Rows::kHeld), l.task.num_kv_heads), kRowsThreads,
                  sizeof(RowsShared<Rows>), stream, l, window_rows_tiles(l.task.op),
                  mass_span_tiles(l), spans);
  }));
  return launch("window attention: row_scales", row_scales,
                ceil_div(rows * l.task.num_kv_heads, kRowsThreads), kRowsThreads, 0, stream, l,
                spans);
}

Status launch_window_rows(const WindowLaunch& l, Stream& stream) {
  if (!moments_apart(l)) return launch_pass(l, {true, l.task.claims}, stream);
  PRECIS_TRY(launch_pass(l, {true, false}, stream));
  return launch_pass(by_query_heads(l), {false, true}, stream);
}

Status launch_window_claim(const WindowLaunch& l, Stream& stream) {
  const AttentionOp op = moments_apart(l) ? by_query_heads(l).task.op : l.task.op;
  const std::uint64_t tiles = std::uint64_t{window_rows_tiles(op)} * l.task.num_kv_heads;
  return launch("window attention: row_claim", row_claim, 1, kRowsThreads,
                kRowsThreads * sizeof(TileMoments), stream, l, tiles);
}

}  // namespace precis::kernels
