// Window attention's two passes over K on tensor cores (window_attention_cuda.cu says what each is
// for). A block of threads holds a tile of keys in shared memory. A warp takes the rows of one
// query head, 16 at once, against half of the tile, and keeps the logits in registers.
#include "kernels/common/mma.cuh"
#include "kernels/common/tuning.h"
#include "kernels/score/window_attention_launch_cuda.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kThreads = kElementwiseThreads, kWarps = kThreads / kWarp;
constexpr std::uint32_t kHalves = 2, kTiles = kWindowMmaTileTokens / kHalves / 8;  // of 8 tokens
constexpr float kMinusInfinity = -__builtin_huge_valf();

// Channels 2i and 2i + 1 in word i. The gap keeps the lanes of a warp in different banks.
template <int kSteps>
struct KeyTile {
  alignas(16) std::uint32_t words[kWindowMmaTileTokens][kSteps * 8 + 4];

  __device__ void load(const WindowLaunch& l, std::uint32_t head, std::uint32_t first) {
    constexpr std::uint32_t kUnits = kSteps * 2;  // of 16 bytes
    const std::uint32_t units = l.task.head_dim / 8;
    const auto* keys = static_cast<const uint4*>(l.task.keys);
    const std::uint64_t row = std::uint64_t{head} * l.task.num_tokens + first;
    for (std::uint32_t i = threadIdx.x; i < kWindowMmaTileTokens * kUnits; i += kThreads) {
      const std::uint32_t t = i / kUnits, unit = i % kUnits;
      const bool inside = unit < units && first + t < l.task.num_tokens;
      *reinterpret_cast<uint4*>(&words[t][unit * 4]) =
          inside ? keys[(row + t) * units + unit] : uint4{0, 0, 0, 0};
    }
    __syncthreads();
  }
};

// 16 observing rows of a query head, from `first` on; rows beyond the window are zero.
template <int kSteps>
struct QueryRows {
  std::uint32_t words[kSteps][4];

  __device__ void load(const WindowLaunch& l, std::uint32_t q_head, std::uint32_t first) {
    const AttentionOp& op = l.task.op;
    const std::uint32_t lane = threadIdx.x % kWarp, pairs = l.task.head_dim / 2;
    const auto* queries = static_cast<const std::uint32_t*>(l.task.queries);
    const std::uint64_t base = std::uint64_t{q_head} * l.task.pushed + l.task.pushed - op.rows;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (std::uint32_t i = 0; i < 4; ++i) {
        const std::uint32_t row = first + lane / 4 + i % 2 * 8;
        const std::uint32_t pair = static_cast<std::uint32_t>(s) * 8 + i / 2 * 4 + lane % 4;
        words[s][i] = row < op.rows && pair < pairs ? queries[(base + row) * pairs + pair] : 0;
      }
    }
  }
};

// z[n][..]: logits of these rows and tokens half + 8 n .. of the tile; which of them are a lane's,
// mma.cuh says.
template <int kSteps>
__device__ void logits(const KeyTile<kSteps>& keys, const QueryRows<kSteps>& queries, float scale,
                       std::uint32_t half, float (&z)[kTiles][4]) {
  const std::uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
  for (std::uint32_t n = 0; n < kTiles; ++n) {
    float sums[4] = {};
    const std::uint32_t* token = keys.words[half + n * 8 + lane / 4];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const std::uint32_t b[2] = {token[s * 8 + lane % 4], token[s * 8 + lane % 4 + 4]};
      multiply_add_bf16(sums, queries.words[s], b);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) z[n][i] = sums[i] * scale;
  }
}

// One warp's share of a tile: a query head of the group and half of the tokens.
struct Item {
  std::uint32_t g, half;
};
__device__ Item item_of(std::uint32_t i) {
  return {i / kHalves, i % kHalves * (kWindowMmaTileTokens / kHalves)};
}

struct Extremes {
  float largest, sum;
};
template <int kSteps>
struct StatsShared {
  KeyTile<kSteps> keys;
  Extremes of_halves[kWarps][16];  // of the rows at hand
};

// Largest logit and sum of exponentials of row `i`, whose logits are z[..][2 r], z[..][2 r + 1],
// over the tokens of a half that it sees.
__device__ Extremes row_extremes(const AttentionOp& op, const float (&z)[kTiles][4],
                                 std::uint32_t r, std::uint32_t i, std::uint32_t token) {
  Extremes e{kMinusInfinity, 0};
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

__device__ Extremes together(const Extremes& a, const Extremes& b) {
  const float largest = fmaxf(a.largest, b.largest);
  if (largest == kMinusInfinity) return {largest, 0};
  return {largest, a.sum * exp_f32(a.largest - largest) + b.sum * exp_f32(b.largest - largest)};
}

// grid (tiles, kv heads).
template <int kSteps>
__global__ void __launch_bounds__(kThreads) mma_stats(WindowLaunch l) {
  auto& s = *shared_memory<StatsShared<kSteps>>();
  const AttentionOp& op = l.task.op;
  const std::uint32_t first = blockIdx.x * kWindowMmaTileTokens, head = blockIdx.y;
  const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  s.keys.load(l, head, first);
  const std::uint32_t steps = (op.rows + 15) / 16, pairs = op.group * steps;
  // Two warps side by side take the halves of the same rows.
  for (std::uint32_t p0 = 0; p0 < pairs; p0 += kWarps / kHalves) {
    const std::uint32_t p = p0 + warp / kHalves, row0 = p % steps * 16;
    const std::uint32_t half = item_of(warp).half, q_head = head * op.group + p / steps;
    if (p < pairs) {  // the same in a whole warp
      QueryRows<kSteps> queries;
      queries.load(l, q_head, row0);
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
    if (p < pairs && warp % kHalves == 0 && lane < 16 && row0 + lane < op.rows) {
      const Extremes e = together(s.of_halves[warp][lane], s.of_halves[warp + 1][lane]);
      const std::uint64_t at =
          (std::uint64_t{q_head} * op.rows + row0 + lane) * l.num_tiles + blockIdx.x;
      l.work.tile_largest[at] = e.largest;
      l.work.tile_sum[at] = e.sum;
    }
    __syncthreads();
  }
}

// grid (tiles of the past, kv heads).
template <int kSteps>
__global__ void __launch_bounds__(kThreads) mma_columns(WindowLaunch l) {
  auto& keys = *shared_memory<KeyTile<kSteps>>();
  const AttentionOp& op = l.task.op;
  const std::uint32_t first = blockIdx.x * kWindowMmaTileTokens, head = blockIdx.y;
  const std::uint32_t lane = threadIdx.x % kWarp;
  keys.load(l, head, first);
  for (std::uint32_t i = threadIdx.x / kWarp; i < op.group * kHalves; i += kWarps) {
    const Item item = item_of(i);
    const std::uint32_t q_head = head * op.group + item.g;
    const float* lse = l.task.lse != nullptr ? l.task.lse + std::uint64_t{q_head} * l.task.pushed +
                                                   l.task.pushed - op.rows
                                             : l.work.lse + std::uint64_t{q_head} * op.rows;
    float sums[kTiles][2] = {};
    for (std::uint32_t row0 = 0; row0 < op.rows; row0 += 16) {
      QueryRows<kSteps> queries;
      queries.load(l, q_head, row0);
      float z[kTiles][4];
      logits(keys, queries, l.scale, item.half, z);
#pragma unroll
      for (std::uint32_t r = 0; r < 2; ++r) {
        const std::uint32_t row = row0 + lane / 4 + r * 8;
        if (row >= op.rows) continue;
        const float of_row = lse[row];
#pragma unroll
        for (std::uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
          for (std::uint32_t c = 0; c < 2; ++c) {
            sums[n][c] = AttentionOp::row_added(op.row_reduce, sums[n][c],
                                                AttentionOp::weight(z[n][2 * r + c], of_row));
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
        const std::uint32_t token = first + item.half + n * 8 + lane % 4 * 2 + c;
        if (lane >= 4 || token >= op.columns) continue;
        l.work.columns[std::uint64_t{q_head} * op.columns + token] =
            AttentionOp::row_finished(op.row_reduce, sum, op.rows);
      }
    }
  }
}

// fn.operator()<kSteps>(): of 16 channels.
template <typename Fn>
Status for_steps(const WindowLaunch& l, const Fn& fn) {
  if (l.task.head_dim <= 64) return fn.template operator()<4>();
  if (l.task.head_dim <= 128) return fn.template operator()<8>();
  return fn.template operator()<16>();
}

}  // namespace

bool takes_window_mma(const WindowAttentionDevice& task) {
  return task.dtype == Dtype::kBf16 && task.head_dim % 8 == 0 && task.head_dim <= 256;
}

Status launch_window_mma_stats(const WindowLaunch& l, Stream& stream) {
  return for_steps(l, [&]<int kSteps>() {
    return launch("window attention: mma_stats", mma_stats<kSteps>,
                  dim3(l.num_tiles, l.task.num_kv_heads), kThreads, sizeof(StatsShared<kSteps>),
                  stream, l);
  });
}

Status launch_window_mma_columns(const WindowLaunch& l, Stream& stream) {
  return for_steps(l, [&]<int kSteps>() {
    return launch("window attention: mma_columns", mma_columns<kSteps>,
                  dim3(ceil_div(l.task.op.columns, kWindowMmaTileTokens), l.task.num_kv_heads),
                  kThreads, sizeof(KeyTile<kSteps>), stream, l);
  });
}

}  // namespace precis::kernels
