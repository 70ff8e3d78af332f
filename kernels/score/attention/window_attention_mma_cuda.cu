// The passes of attention scores over K on tensor cores (window_attention_cuda.cu describes each).
// A block of threads holds a tile of keys in shared memory. A warp multiplies rows of one query
// head, 16 at a time, with half of the tile, and keeps the logits in registers.
#include "kernels/common/tuning.h"
#include "kernels/score/attention/window_mma.cuh"
#include "kernels/score/attention/window_softmax.cuh"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kThreads = kElementwiseThreads, kWarps = kThreads / kWarp;
constexpr std::uint32_t kHalves = 2, kTiles = kWindowMmaTileTokens / kHalves / 8;  // of 8 tokens
constexpr std::uint32_t kHeadsAtOnce = kWarps / kHalves;
constexpr std::uint32_t kPairsOfBlock = kWindowRowsOfBlock / 16;

// Maps row r of QueryRows to the query of observing row first + r of a query head.
struct RowsFrom {
  const WindowLaunch& l;
  std::uint32_t q_head, first;
  __device__ std::uint64_t operator()(std::uint32_t r) const {
    const AttentionOp& op = l.task.op;
    if (first + r >= op.rows) return ~std::uint64_t{0};  // QueryRows::kNone
    return std::uint64_t{q_head} * l.task.pushed + l.task.pushed - op.rows + first + r;
  }
};

// One warp's share of a tile: a query head and half of the tokens.
struct Item {
  std::uint32_t g, half;
};
__device__ Item item_of(std::uint32_t i) {
  return {i / kHalves, i % kHalves * (kWindowMmaTileTokens / kHalves)};
}

template <int kSteps>
struct StatsShared {
  KeyTile<kSteps> keys;
  Extremes of_halves[kWarps][16];  // of the current rows
  Extremes of_rows[kWindowRowsOfBlock];
};

// Largest logit and sum of exponentials of row `i`, whose logits are z[..][2 r], z[..][2 r + 1],
// over the tokens of a half that it sees.
__device__ Extremes row_extremes(const AttentionOp& op, const float (&z)[kTiles][4],
                                 std::uint32_t r, std::uint32_t i, std::uint32_t token) {
  Extremes e;
  const auto seen = [&](std::uint32_t n, std::uint32_t c) {
    return i < op.rows && token + n * 8 + c < op.visible(i);
  };
#pragma unroll
  for (std::uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
    for (std::uint32_t c = 0; c < 2; ++c) {
      if (seen(n, c)) e.largest = fmaxf(e.largest, z[n][2 * r + c]);
    }
  }
  for (int step = 1; step < 4; step *= 2) {
    e.largest = fmaxf(e.largest, __shfl_xor_sync(kWholeWarp, e.largest, step));
  }
#pragma unroll
  for (std::uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
    for (std::uint32_t c = 0; c < 2; ++c) {
      if (seen(n, c)) e.sum += exp_f32(z[n][2 * r + c] - e.largest);
    }
  }
  for (int step = 1; step < 4; step *= 2) e.sum += __shfl_xor_sync(kWholeWarp, e.sum, step);
  return e;
}

// Adds one tile to the rows of a block, [pairs][16]: a pair is a query head and 16 of its rows. Two
// neighbouring warps take the two halves of the tile for the same rows.
template <int kSteps>
__device__ void add_tile(const WindowLaunch& l, std::uint32_t head, std::uint32_t first,
                         std::uint32_t pair0, std::uint32_t pairs, StatsShared<kSteps>& s) {
  const AttentionOp& op = l.task.op;
  const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const std::uint32_t steps = (op.rows + 15) / 16, half = item_of(warp).half;
  for (std::uint32_t p0 = 0; p0 < pairs; p0 += kHeadsAtOnce) {
    const std::uint32_t p = p0 + warp / kHalves, row0 = (pair0 + p) % steps * 16;
    // `seen` is the same in all lanes of a warp: row 15 sees the most tokens of the 16 rows.
    const bool seen = p < pairs && first < op.visible(min(row0 + 15, op.rows - 1));
    if (seen) {
      QueryRows<kSteps> queries;
      queries.load(l, RowsFrom{l, head * op.group + (pair0 + p) / steps, row0});
      float z[kTiles][4];
      logits(s.keys, queries, l.scale, half, z);
#pragma unroll
      for (std::uint32_t r = 0; r < 2; ++r) {
        const Extremes e =
            row_extremes(op, z, r, row0 + lane / 4 + r * 8, first + half + lane % 4 * 2);
        if (lane % 4 == 0) s.of_halves[warp][lane / 4 + r * 8] = e;
      }
    }
    __syncthreads();
    if (seen && warp % kHalves == 0 && lane < 16) {
      Extremes& row = s.of_rows[p * 16 + lane];
      row = together(row, together(s.of_halves[warp][lane], s.of_halves[warp + 1][lane]));
    }
    __syncthreads();
  }
}

// grid (spans of every kPairsOfBlock pairs, kv heads).
template <int kSteps>
__global__ void __launch_bounds__(kThreads) mma_stats(WindowLaunch l) {
  auto& s = *shared_memory<StatsShared<kSteps>>();
  const AttentionOp& op = l.task.op;
  const std::uint32_t head = blockIdx.y, span = blockIdx.x % l.num_spans;
  const std::uint32_t steps = (op.rows + 15) / 16;
  const std::uint32_t pair0 = blockIdx.x / l.num_spans * kPairsOfBlock;
  const std::uint32_t pairs = min(kPairsOfBlock, op.group * steps - pair0);
  if (threadIdx.x < kWindowRowsOfBlock) s.of_rows[threadIdx.x] = {};
  const std::uint32_t last = min(l.num_tiles, (span + 1) * l.span_tiles);
  for (std::uint32_t tile = span * l.span_tiles; tile < last; ++tile) {
    s.keys.load(l, head, tile * kWindowMmaTileTokens);
    add_tile(l, head, tile * kWindowMmaTileTokens, pair0, pairs, s);
  }
  for (std::uint32_t i = threadIdx.x; i < pairs * 16; i += kThreads) {
    const std::uint32_t pair = pair0 + i / 16, row = pair % steps * 16 + i % 16;
    if (row >= op.rows) continue;
    const std::uint64_t q_head = std::uint64_t{head} * op.group + pair / steps;
    keep_stats(l, q_head * op.rows + row, span, s.of_rows[i]);
  }
}

template <int kSteps>
struct ColumnsShared {
  KeyTile<kSteps> keys;
  float of_heads[kHeadsAtOnce][kWindowMmaTileTokens];  // columns of the current query heads
};

static_assert(sizeof(StatsShared<16>) <= 48 * 1024 && sizeof(ColumnsShared<16>) <= 48 * 1024);

// out[token of the half] = a query head's column, reduced over the rows that see it.
template <int kSteps>
__device__ void reduce_rows(const WindowLaunch& l, const KeyTile<kSteps>& keys,
                            std::uint32_t q_head, std::uint32_t first, std::uint32_t half,
                            float* out) {
  const AttentionOp& op = l.task.op;
  const std::uint32_t lane = threadIdx.x % kWarp;
  const float* lse = l.lse_of(q_head);
  float sums[kTiles][2] = {};
  for (std::uint32_t row0 = op.first_row(first) / 16 * 16; row0 < op.rows; row0 += 16) {
    QueryRows<kSteps> queries;
    queries.load(l, RowsFrom{l, q_head, row0});
    float z[kTiles][4];
    logits(keys, queries, l.scale, half, z);
#pragma unroll
    for (std::uint32_t r = 0; r < 2; ++r) {
      const std::uint32_t row = row0 + lane / 4 + r * 8;
      if (row >= op.rows) continue;
      const float of_row = lse[row];
      const std::uint32_t visible = op.visible(row);
#pragma unroll
      for (std::uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
        for (std::uint32_t c = 0; c < 2; ++c) {
          const bool seen = first + half + n * 8 + lane % 4 * 2 + c < visible;
          const float weight = seen ? AttentionOp::weight(z[n][2 * r + c], of_row) : 0.0f;
          sums[n][c] = AttentionOp::row_added(op.row_reduce, sums[n][c], weight);
        }
      }
    }
  }
  const Reduce over_lanes = op.row_reduce == RowReduce::kMax ? Reduce::kMax : Reduce::kSum;
#pragma unroll
  for (std::uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
    for (std::uint32_t c = 0; c < 2; ++c) {
      float sum = sums[n][c];
      for (int step = 4; step < 32; step *= 2) {
        sum = AttentionOp::added(over_lanes, sum, __shfl_xor_sync(kWholeWarp, sum, step));
      }
      const std::uint32_t t = half + n * 8 + lane % 4 * 2 + c;
      if (lane >= 4 || first + t >= op.columns) continue;
      out[t] = AttentionOp::row_finished(op.row_reduce, sum, op.seen_by(first + t));
    }
  }
}

// grid (tiles of columns, kv heads).
template <int kSteps>
__global__ void __launch_bounds__(kThreads) mma_columns(WindowLaunch l) {
  auto& s = *shared_memory<ColumnsShared<kSteps>>();
  const AttentionOp& op = l.task.op;
  const std::uint32_t first = blockIdx.x * kWindowMmaTileTokens, head = blockIdx.y;
  const std::uint32_t token = first + threadIdx.x;
  const bool scored = threadIdx.x < kWindowMmaTileTokens && token < op.columns;
  s.keys.load(l, head, first);
  float grouped = 0;  // of the thread's token
  for (std::uint32_t g0 = 0; g0 < op.group; g0 += kHeadsAtOnce) {
    const Item item = item_of(threadIdx.x / kWarp);
    if (g0 + item.g < op.group) {
      reduce_rows(l, s.keys, head * op.group + g0 + item.g, first, item.half, s.of_heads[item.g]);
    }
    __syncthreads();
    for (std::uint32_t g = g0; scored && g < min(g0 + kHeadsAtOnce, op.group); ++g) {
      const float x = s.of_heads[g - g0][threadIdx.x];
      grouped = AttentionOp::added(op.group_reduce, grouped, x);
      if (l.groups_columns()) continue;
      l.work.columns[(std::uint64_t{head} * op.group + g) * op.columns + token] = x;
    }
    __syncthreads();
  }
  if (!scored || !l.groups_columns()) return;
  l.work.columns[std::uint64_t{head} * op.columns + token] =
      AttentionOp::finished(op.group_reduce, grouped, op.group);
}

}  // namespace

bool takes_window_mma(const WindowAttentionDevice& task) {
  return task.dtype == Dtype::kBf16 && task.head_dim % 8 == 0 && task.head_dim <= 256;
}

Status launch_window_mma_stats(const WindowLaunch& l, Stream& stream) {
  const std::uint64_t pairs = std::uint64_t{l.task.op.group} * ((l.task.op.rows + 15) / 16);
  return for_steps(l, [&]<int kSteps>() {
    return launch("window attention: mma_stats", mma_stats<kSteps>,
                  dim3(l.num_spans * ceil_div(pairs, kPairsOfBlock), l.task.num_kv_heads), kThreads,
                  sizeof(StatsShared<kSteps>), stream, l);
  });
}

Status launch_window_mma_columns(const WindowLaunch& l, Stream& stream) {
  return for_steps(l, [&]<int kSteps>() {
    return launch("window attention: mma_columns", mma_columns<kSteps>,
                  dim3(ceil_div(l.task.op.columns, kWindowMmaTileTokens), l.task.num_kv_heads),
                  kThreads, sizeof(ColumnsShared<kSteps>), stream, l);
  });
}

}  // namespace precis::kernels
