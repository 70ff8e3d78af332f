// Attention scores on the device, with the arithmetic of attention_op.h:
//   span_stats   each row's largest logit and sum of exponentials over some tiles of keys
//   merge_stats  each row's log-sum-exp over its spans, if there are several (both are skipped if
//                the log-sum-exp was pushed)
//   columns      recomputes the logits and reduces the weights over the rows of each query head,
//                and over the group too if no pooling comes between
//   finish       the remaining pooling and group reduction; +inf for the tokens behind the columns
// bf16 keys use tensor cores (window_attention_mma_cuda.cu); other dtypes use the plain kernels
// here. Columns that need more than one sum over their rows are in window_rows_cuda.cu. Orders of
// summation are fixed, without atomics: the same input gives the same scores.
#include <algorithm>
#include <cmath>

#include "kernels/common/tuning.h"
#include "kernels/common/workspace.h"
#include "kernels/score/attention/window_attention_launch_cuda.h"
#include "kernels/score/attention/window_softmax.cuh"

namespace precis::kernels {
namespace {

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

// The largest value and the sum over the `lanes` lanes of a row: a power of two, at most a warp.
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

// grid (spans of every kWindowRowsOfBlock rows, kv heads), block (tile_tokens, rows).
__global__ void span_stats(WindowLaunch l) {
  const AttentionOp& op = l.task.op;
  auto* keys_t = shared_memory<float>();
  auto* of_rows = reinterpret_cast<Extremes*>(keys_t + l.tile_tokens * l.task.head_dim);
  const std::uint32_t head = blockIdx.y, span = blockIdx.x % l.num_spans;
  const std::uint32_t row0 = blockIdx.x / l.num_spans * kWindowRowsOfBlock;
  const std::uint32_t rows = min(kWindowRowsOfBlock, op.group * op.rows - row0);
  const std::uint32_t last = min(l.num_tiles, (span + 1) * l.span_tiles);
  for (std::uint32_t tile = span * l.span_tiles; tile < last; ++tile) {
    const std::uint32_t first = tile * l.tile_tokens;
    load_tile(l, head, first, keys_t);
    // Every lane takes part in the shuffles, so the loop's bound is the same for a whole block.
    for (std::uint32_t r0 = 0; r0 < rows; r0 += blockDim.y) {
      const std::uint32_t r = min(r0 + threadIdx.y, rows - 1);
      const std::uint32_t i = (row0 + r) % op.rows, g = (row0 + r) / op.rows;
      const float z = logit(l, head * op.group + g, i, keys_t);
      const bool seen = first + threadIdx.x < op.visible(i);
      Extremes e;
      e.largest = lanes_largest(seen ? z : kMinusInfinity, l.tile_tokens);
      e.sum = lanes_sum(seen ? exp_f32(z - e.largest) : 0.0f, l.tile_tokens);
      if (threadIdx.x != 0 || r0 + threadIdx.y >= rows) continue;
      of_rows[r] = tile == span * l.span_tiles ? e : together(of_rows[r], e);
    }
    __syncthreads();
  }
  const std::uint64_t at = std::uint64_t{head} * op.group * op.rows + row0;
  for (std::uint32_t r = threadIdx.y * blockDim.x + threadIdx.x; r < rows;
       r += blockDim.x * blockDim.y) {
    keep_stats(l, at + r, span, of_rows[r]);
  }
}

// One warp per row, so that the loads of a row's stats are of neighbouring words. The order of the
// sum depends only on the number of spans.
__global__ void merge_stats(WindowLaunch l) {
  const std::uint64_t row = (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp;
  if (row >= std::uint64_t{l.task.num_kv_heads} * l.task.op.group * l.task.op.rows) return;
  const float* largest = l.work.largest + row * l.num_spans;
  const float* sum = l.work.sum + row * l.num_spans;
  const std::uint32_t lane = threadIdx.x % kWarp;
  float top = kMinusInfinity, total = 0;
  for (std::uint32_t i = lane; i < l.num_spans; i += kWarp) top = fmaxf(top, largest[i]);
  top = lanes_largest(top, kWarp);
  for (std::uint32_t i = lane; i < l.num_spans; i += kWarp) {
    total += sum[i] * exp_f32(largest[i] - top);
  }
  total = lanes_sum(total, kWarp);
  if (lane != 0) return;
  l.work.lse[row] = top + logf(total);
}

// The weights of a query head's rows at this thread's token, reduced.
__device__ float column(const WindowLaunch& l, std::uint32_t q_head, std::uint32_t token,
                        const float* keys_t) {
  const AttentionOp& op = l.task.op;
  const float* lse = l.lse_of(q_head);
  float sum = 0;
  for (std::uint32_t i = op.first_row(token); i < op.rows; ++i) {
    const float weight = AttentionOp::weight(logit(l, q_head, i, keys_t), lse[i]);
    sum = AttentionOp::row_added(op.row_reduce, sum, weight);
  }
  return AttentionOp::row_finished(op.row_reduce, sum, op.seen_by(token));
}

// grid (tiles, kv heads), block (tile_tokens, query heads of the group).
__global__ void columns(WindowLaunch l) {
  const AttentionOp& op = l.task.op;
  auto* keys_t = shared_memory<float>();
  float* of_round = keys_t + l.tile_tokens * l.task.head_dim;  // [blockDim.y, tile_tokens]
  const std::uint32_t first = blockIdx.x * l.tile_tokens, head = blockIdx.y;
  load_tile(l, head, first, keys_t);
  const std::uint32_t token = first + threadIdx.x;
  float grouped = 0;  // in the threads with threadIdx.y 0
  for (std::uint32_t g0 = 0; g0 < op.group; g0 += blockDim.y) {
    const std::uint32_t g = g0 + threadIdx.y, q_head = head * op.group + g;
    const bool inside = token < op.columns && g < op.group;
    const float x = inside ? column(l, q_head, token, keys_t) : 0.0f;
    if (!l.groups_columns()) {
      if (inside) l.work.columns[std::uint64_t{q_head} * op.columns + token] = x;
      continue;
    }
    of_round[threadIdx.y * l.tile_tokens + threadIdx.x] = x;
    __syncthreads();
    for (std::uint32_t y = 0; threadIdx.y == 0 && y < min(blockDim.y, op.group - g0); ++y) {
      grouped =
          AttentionOp::added(op.group_reduce, grouped, of_round[y * l.tile_tokens + threadIdx.x]);
    }
    __syncthreads();
  }
  if (!l.groups_columns() || threadIdx.y != 0 || token >= op.columns) return;
  l.work.columns[std::uint64_t{head} * op.columns + token] =
      AttentionOp::finished(op.group_reduce, grouped, op.group);
}

// The score of a token from the columns of its KV head.
__device__ float score_of(const AttentionOp& op, const float* columns, std::uint64_t head,
                          std::uint32_t token) {
  if (op.pool_order == PoolOrder::kRowsPoolGroup) {
    return op.score(columns + head * op.group * op.columns, token);
  }
  const float* of_head = columns + head * op.columns;
  if (op.pools_rows()) return of_head[token];
  return op.pooled([of_head](std::uint32_t t) { return of_head[t]; }, token);
}

// One thread per (kv head, token).
__global__ void finish(WindowLaunch l) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= std::uint64_t{l.task.num_kv_heads} * l.task.num_tokens) return;
  const auto token = static_cast<std::uint32_t>(i % l.task.num_tokens);
  const bool scored = token < l.task.op.columns;
  l.task.scores[i] =
      scored ? score_of(l.task.op, l.work.columns, i / l.task.num_tokens, token) : -kMinusInfinity;
  if (!scored && l.task.mean != nullptr) l.task.mean[i] = -kMinusInfinity;
}

// Without tensor cores: the largest power of two of tokens whose keys fit the tile.
std::uint32_t tile_tokens(const WindowAttentionDevice& task) {
  if (takes_window_mma(task)) return kWindowMmaTileTokens;
  std::uint32_t tokens = kWindowTileTokensMax;
  while (tokens > 1 && tokens * task.head_dim * sizeof(float) > kWindowTileBytesMax) tokens /= 2;
  return tokens;
}

std::uint64_t rows_of(const WindowAttentionDevice& task) {
  return std::uint64_t{task.num_kv_heads} * task.op.group * task.op.rows;
}

// Spans are as short as possible with stats of at most 4 B per KV head and token. If columns are
// kept per query head, they are computed for as many heads at once as fit in 8 B per KV head and
// token.
WindowLaunch launch_of(const WindowAttentionDevice& task) {
  WindowLaunch l{};
  l.task = task;
  l.scale = 1.0f / std::sqrt(static_cast<float>(task.head_dim));
  l.tile_tokens = tile_tokens(task);
  l.num_tiles = ceil_div(task.num_tokens, l.tile_tokens);
  const std::uint64_t rows = std::uint64_t{task.op.group} * task.op.rows;
  const std::uint64_t affordable = std::max<std::uint64_t>(1, task.num_tokens / (2 * rows));
  l.span_tiles = ceil_div(l.num_tiles, std::min<std::uint64_t>(l.num_tiles, affordable));
  l.num_spans = ceil_div(l.num_tiles, l.span_tiles);
  const std::uint32_t heads = task.num_kv_heads;
  l.heads_at_once = l.groups_columns() ? heads : std::clamp(2 * heads / task.op.group, 1u, heads);
  return l;
}

// Divides the workspace into arrays; returns its size.
std::size_t place(WindowLaunch& l, void* workspace) {
  const WindowAttentionDevice& task = l.task;
  const std::uint64_t rows = rows_of(task), heads = task.num_kv_heads;
  Workspace space(workspace);
  WindowWorkspace& work = l.work;
  const std::size_t stats = task.lse == nullptr && l.num_spans > 1 ? rows * l.num_spans : 0;
  const bool keeps_mass = task.row_mass && task.op.pools_rows();
  const std::size_t masses = keeps_mass ? rows * window_rows_mass_spans(l) : 0;
  void* both =
      space.take<std::byte>(std::max(2 * stats * sizeof(float), masses * sizeof(RowMasses)));
  work.largest = static_cast<float*>(both);
  work.sum = work.largest + stats;
  work.masses = static_cast<RowMasses*>(both);
  work.lse = space.take<float>(task.lse == nullptr ? rows : 0);
  work.scales = keeps_mass ? space.take<float>(rows) : nullptr;
  work.columns = space.take<float>(std::size_t{l.heads_at_once} *
                                   (l.groups_columns() ? 1 : task.op.group) * task.op.columns);
  work.moments = space.take<TileMoments>(task.claims ? heads * window_rows_tiles(task.op) : 0);
  return space.size_bytes();
}

Status launch_stats(const WindowLaunch& l, Stream& stream) {
  if (takes_window_mma(l.task)) {
    PRECIS_TRY(launch_window_mma_stats(l, stream));
  } else {
    // All lanes of a warp must belong to rows, so a block has as many rows as make whole warps.
    const dim3 block(l.tile_tokens, kWindowRowsPerBlock * kWindowTileTokensMax / l.tile_tokens);
    const std::uint64_t rows = std::uint64_t{l.task.op.group} * l.task.op.rows;
    const dim3 grid(l.num_spans * ceil_div(rows, kWindowRowsOfBlock), l.task.num_kv_heads);
    const std::size_t shared = std::size_t{l.tile_tokens} * l.task.head_dim * sizeof(float) +
                               kWindowRowsOfBlock * sizeof(Extremes);
    PRECIS_TRY(launch("window attention: span_stats", span_stats, grid, block, shared, stream, l));
  }
  if (l.num_spans == 1) return {};
  return launch("window attention: merge_stats", merge_stats,
                ceil_div(rows_of(l.task) * kWarp, kElementwiseThreads), kElementwiseThreads, 0,
                stream, l);
}

Status launch_columns(const WindowLaunch& l, Stream& stream) {
  if (takes_window_rows(l.task)) return launch_window_rows(l, stream);
  if (takes_window_mma(l.task)) return launch_window_mma_columns(l, stream);
  const dim3 grid(ceil_div(l.task.op.columns, l.tile_tokens), l.task.num_kv_heads);
  const dim3 block(
      l.tile_tokens,
      std::min(l.task.op.group, kWindowRowsPerBlock * kWindowTileTokensMax / l.tile_tokens));
  const std::size_t shared = l.tile_tokens * (l.task.head_dim + block.y) * sizeof(float);
  return launch("window attention: columns", columns, grid, block, shared, stream, l);
}

// The launch for `count` KV heads from `head` on.
WindowLaunch heads_of(const WindowLaunch& all, std::uint32_t head, std::uint32_t count) {
  WindowLaunch l = all;
  WindowAttentionDevice& task = l.task;
  const std::size_t row_bytes = task.head_dim * dtype_size_bytes(task.dtype);
  const std::size_t tokens = std::size_t{head} * task.num_tokens;
  const std::size_t q_head = std::size_t{head} * task.op.group;
  task.num_kv_heads = count;
  task.keys = static_cast<const std::byte*>(task.keys) + tokens * row_bytes;
  task.queries = static_cast<const std::byte*>(task.queries) + q_head * task.pushed * row_bytes;
  if (task.lse != nullptr) task.lse += q_head * task.pushed;
  task.scores += tokens;
  if (task.mean != nullptr) task.mean += tokens;
  l.work.lse += q_head * task.op.rows;
  if (l.work.scales != nullptr) l.work.scales += q_head * task.op.rows;
  if (task.claims) l.work.moments += std::size_t{head} * window_rows_tiles(task.op);
  return l;
}

Status launch_scores(const WindowLaunch& l, Stream& stream) {
  PRECIS_TRY(launch_columns(l, stream));
  const std::uint64_t scores = std::uint64_t{l.task.num_kv_heads} * l.task.num_tokens;
  return launch("window attention: finish", finish, ceil_div(scores, kElementwiseThreads),
                kElementwiseThreads, 0, stream, l);
}

}  // namespace

bool takes_window_attention(const AttentionOp& op) {
  return !op.pools_rows() || op.kernel <= kPooledRowsKernelMax;
}

std::size_t window_attention_workspace_bytes(const WindowAttentionDevice& task) {
  WindowLaunch l = launch_of(task);
  return place(l, nullptr);
}

Status launch_window_attention(const WindowAttentionDevice& task, void* workspace, Stream& stream) {
  WindowLaunch l = launch_of(task);
  place(l, workspace);
  if (task.lse == nullptr) PRECIS_TRY(launch_stats(l, stream));
  if (l.work.scales != nullptr) PRECIS_TRY(launch_window_row_scales(l, stream));
  for (std::uint32_t head = 0; head < task.num_kv_heads; head += l.heads_at_once) {
    const std::uint32_t count = std::min(l.heads_at_once, task.num_kv_heads - head);
    PRECIS_TRY(launch_scores(heads_of(l, head, count), stream));
  }
  return task.claims ? launch_window_claim(l, stream) : Status{};
}

}  // namespace precis::kernels
