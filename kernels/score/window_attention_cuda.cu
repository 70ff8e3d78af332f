// Window-attention score on the device, with the arithmetic of attention_op.h:
//   tile_stats   each row's largest logit and sum of exponentials over one tile of keys
//   merge_stats  each row's log-sum-exp over its tiles (both skipped where it was pushed)
//   columns      recomputes the logits and reduces the weights over the rows of each query head
//   finish       pool and group reduce; +inf for the window
// On tensor cores where K is bf16 (window_attention_mma_cuda.cu), plainly here elsewhere.
// Fixed orders of summation, no atomics: the same input gives the same scores.
#include <algorithm>
#include <cmath>

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"
#include "kernels/score/window_attention_launch_cuda.h"

namespace precis::kernels {
namespace {

constexpr float kMinusInfinity = -__builtin_huge_valf();

// keys_t[c * tile_tokens + t], zero beyond the last token.
__device__ void load_tile(const WindowLaunch& l, std::uint32_t head, std::uint32_t first,
                          float* keys_t) {
  const std::uint32_t dim = l.task.head_dim;
  const std::uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
  const std::uint64_t base = (std::uint64_t{head} * l.task.num_tokens + first) * dim;
  const std::uint32_t count = min(l.tile_tokens, l.task.num_tokens - first);
  for (std::uint32_t i = thread; i < l.tile_tokens * dim; i += blockDim.x * blockDim.y) {
    const std::uint32_t t = i / dim, c = i % dim;
    keys_t[c * l.tile_tokens + t] = t < count ? element(l.task.dtype, l.task.keys, base + i) : 0.0f;
  }
  __syncthreads();
}

// The logit of row (query head, i) and this thread's token.
__device__ float logit(const WindowLaunch& l, std::uint32_t q_head, std::uint32_t i,
                       const float* keys_t) {
  const std::uint32_t dim = l.task.head_dim;
  const std::uint64_t row =
      std::uint64_t{q_head} * l.task.pushed + l.task.pushed - l.task.op.rows + i;
  float sum = 0;
  for (std::uint32_t c = 0; c < dim; ++c) {
    sum += element(l.task.dtype, l.task.queries, row * dim + c) * l.scale *
           keys_t[c * l.tile_tokens + threadIdx.x];
  }
  return sum;
}

// Largest value and sum over the tile_tokens (a power of two, at most a warp) lanes of a row.
__device__ float lanes_largest(float x, std::uint32_t lanes) {
  for (std::uint32_t step = lanes / 2; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  }
  return x;
}
__device__ float lanes_sum(float x, std::uint32_t lanes) {
  for (std::uint32_t step = lanes / 2; step > 0; step /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// grid (tiles, kv heads), block (tile_tokens, rows).
__global__ void tile_stats(WindowLaunch l) {
  auto* keys_t = shared_memory<float>();
  const std::uint32_t first = blockIdx.x * l.tile_tokens, head = blockIdx.y;
  load_tile(l, head, first, keys_t);
  const AttentionOp& op = l.task.op;
  const std::uint32_t rows = op.group * op.rows;
  // Every lane takes part in the shuffles, so the loop's bound is the same for a whole block.
  for (std::uint32_t r0 = 0; r0 < rows; r0 += blockDim.y) {
    const std::uint32_t r = min(r0 + threadIdx.y, rows - 1);
    const std::uint32_t i = r % op.rows, q_head = head * op.group + r / op.rows;
    const float z = logit(l, q_head, i, keys_t);
    const bool seen = first + threadIdx.x < op.visible(i);
    const float largest = lanes_largest(seen ? z : kMinusInfinity, l.tile_tokens);
    const float sum = lanes_sum(seen ? exp_f32(z - largest) : 0.0f, l.tile_tokens);
    if (threadIdx.x == 0 && r0 + threadIdx.y < rows) {
      const std::uint64_t at = (std::uint64_t{q_head} * op.rows + i) * l.num_tiles + blockIdx.x;
      l.work.tile_largest[at] = largest;
      l.work.tile_sum[at] = sum;
    }
  }
}

// One thread per row, tiles in order.
__global__ void merge_stats(WindowLaunch l) {
  const std::uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= l.task.num_kv_heads * l.task.op.group * l.task.op.rows) return;
  const float* largest = l.work.tile_largest + std::uint64_t{row} * l.num_tiles;
  const float* sum = l.work.tile_sum + std::uint64_t{row} * l.num_tiles;
  float top = kMinusInfinity, total = 0;
  for (std::uint32_t i = 0; i < l.num_tiles; ++i) top = fmaxf(top, largest[i]);
  for (std::uint32_t i = 0; i < l.num_tiles; ++i) total += sum[i] * exp_f32(largest[i] - top);
  l.work.lse[row] = top + logf(total);
}

// grid (tiles, kv heads), block (tile_tokens, query heads of the group).
__global__ void columns(WindowLaunch l) {
  auto* keys_t = shared_memory<float>();
  const AttentionOp& op = l.task.op;
  const std::uint32_t first = blockIdx.x * l.tile_tokens, head = blockIdx.y;
  load_tile(l, head, first, keys_t);
  const std::uint32_t token = first + threadIdx.x;
  if (token >= op.columns) return;
  for (std::uint32_t g = threadIdx.y; g < op.group; g += blockDim.y) {
    const std::uint32_t q_head = head * op.group + g;
    const std::uint64_t pushed = std::uint64_t{q_head} * l.task.pushed + l.task.pushed - op.rows;
    const float* lse =
        l.task.lse != nullptr ? l.task.lse + pushed : l.work.lse + std::uint64_t{q_head} * op.rows;
    float sum = 0;
    for (std::uint32_t i = 0; i < op.rows; ++i) {
      const float weight = AttentionOp::weight(logit(l, q_head, i, keys_t), lse[i]);
      sum = AttentionOp::row_added(op.row_reduce, sum, weight);
    }
    l.work.columns[std::uint64_t{q_head} * op.columns + token] =
        AttentionOp::row_finished(op.row_reduce, sum, op.rows);
  }
}

// One thread per (kv head, token).
__global__ void finish(WindowLaunch l) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= std::uint64_t{l.task.num_kv_heads} * l.task.num_tokens) return;
  const AttentionOp& op = l.task.op;
  const std::uint64_t head = i / l.task.num_tokens;
  const auto token = static_cast<std::uint32_t>(i % l.task.num_tokens);
  l.task.scores[i] = token < op.columns
                         ? op.score(l.work.columns + head * op.group * op.columns, token)
                         : -kMinusInfinity;
}

// Where tensor cores do not serve, the largest power of two of tokens whose keys fit the tile.
std::uint32_t tile_tokens(const WindowAttentionDevice& task) {
  if (takes_window_mma(task)) return kWindowMmaTileTokens;
  std::uint32_t tokens = kWindowTileTokensMax;
  while (tokens > 1 && tokens * task.head_dim * sizeof(float) > kWindowTileBytesMax) tokens /= 2;
  return tokens;
}

struct Sizes {
  std::uint64_t rows, tiles, columns;
};
Sizes sizes_of(const WindowAttentionDevice& task) {
  const std::uint64_t q_heads = std::uint64_t{task.num_kv_heads} * task.op.group;
  return {q_heads * task.op.rows, ceil_div(task.num_tokens, tile_tokens(task)),
          q_heads * task.op.columns};
}

Status launch_merge_stats(const WindowLaunch& l, Stream& stream) {
  return launch("window attention: merge_stats", merge_stats,
                ceil_div(sizes_of(l.task).rows, kElementwiseThreads), kElementwiseThreads, 0,
                stream, l);
}

Status launch_mma_passes(const WindowLaunch& l, Stream& stream) {
  if (l.task.lse == nullptr) {
    PRECIS_TRY(launch_window_mma_stats(l, stream));
    PRECIS_TRY(launch_merge_stats(l, stream));
  }
  return launch_window_mma_columns(l, stream);
}

Status launch_plain(const WindowLaunch& l, Stream& stream) {
  const std::size_t shared = std::size_t{l.tile_tokens} * l.task.head_dim * sizeof(float);
  // Lanes of a warp must all belong to rows: as many rows as make whole warps.
  const dim3 rows_block(l.tile_tokens, kWindowRowsPerBlock * kWindowTileTokensMax / l.tile_tokens);
  if (l.task.lse == nullptr) {
    PRECIS_TRY(launch("window attention: tile_stats", tile_stats,
                      dim3(l.num_tiles, l.task.num_kv_heads), rows_block, shared, stream, l));
    PRECIS_TRY(launch_merge_stats(l, stream));
  }
  const dim3 grid(ceil_div(l.task.op.columns, l.tile_tokens), l.task.num_kv_heads);
  const dim3 block(l.tile_tokens, std::min(l.task.op.group, rows_block.y));
  return launch("window attention: columns", columns, grid, block, shared, stream, l);
}

}  // namespace

std::size_t window_attention_workspace_bytes(const WindowAttentionDevice& task) {
  const Sizes s = sizes_of(task);
  return (2 * s.rows * s.tiles + s.rows + s.columns) * sizeof(float);
}

Status launch_window_attention(const WindowAttentionDevice& task, void* workspace, Stream& stream) {
  const Sizes s = sizes_of(task);
  WindowLaunch l{task,
                 {},
                 tile_tokens(task),
                 static_cast<std::uint32_t>(s.tiles),
                 1.0f / std::sqrt(static_cast<float>(task.head_dim))};
  l.work.tile_largest = static_cast<float*>(workspace);
  l.work.tile_sum = l.work.tile_largest + s.rows * s.tiles;
  l.work.lse = l.work.tile_sum + s.rows * s.tiles;
  l.work.columns = l.work.lse + s.rows;

  PRECIS_TRY(takes_window_mma(task) ? launch_mma_passes(l, stream) : launch_plain(l, stream));
  const std::uint64_t scores = std::uint64_t{task.num_kv_heads} * task.num_tokens;
  return launch("window attention: finish", finish, ceil_div(scores, kElementwiseThreads),
                kElementwiseThreads, 0, stream, l);
}

}  // namespace precis::kernels
