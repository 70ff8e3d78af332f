// Expected attention on CUDA, a few KV heads at a time, so that the logits stay small:
//   row forms       a logit per query head and token (value_norms_cuda.cu)
//   chunk_extremes  each query head's largest logit and sum of exponentials over a chunk of tokens
//   merge_chunks    the same over all tokens
//   expect          weights, their mean over the group, times ||v||
#include "kernels/score/attention/expected_attention_cuda.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/tuning.h"
#include "kernels/common/workspace.h"
#include "kernels/score/attention/window_softmax.cuh"
#include "kernels/score/keys/key_scores_cuda.h"
#include "kernels/score/values/value_norms_cuda.h"

namespace precis::kernels {
namespace {

struct ExpectedTask {
  ExpectedAttentionDevice d;  // of the current KV heads; its pointers are at the first of them
  std::uint32_t chunks;
  float* logits;       // [query heads, num_tokens]
  Extremes* extremes;  // [query heads, chunks]
  Extremes* softmax;   // [query heads]
};

// grid (chunks, query heads). Each thread takes every blockDim.x-th token, then the first thread
// combines the warps in order.
__global__ void chunk_extremes(ExpectedTask task) {
  auto* of_warps = shared_memory<Extremes>();
  const float* logits = task.logits + std::uint64_t{blockIdx.y} * task.d.num_tokens;
  const std::uint32_t first = blockIdx.x * kExpectedChunkTokens;
  const std::uint32_t last = min(task.d.num_tokens, first + kExpectedChunkTokens);
  Extremes e;
  for (std::uint32_t t = max(first, task.d.sinks) + threadIdx.x; t < last; t += blockDim.x) {
    e = together(e, {logits[t], 1});
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    Extremes other;
    other.largest = __shfl_xor_sync(kWholeWarp, e.largest, step);
    other.sum = __shfl_xor_sync(kWholeWarp, e.sum, step);
    e = together(e, other);
  }
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = e;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (std::uint32_t w = 1; w < blockDim.x / kWarp; ++w) e = together(e, of_warps[w]);
  task.extremes[std::uint64_t{blockIdx.y} * task.chunks + blockIdx.x] = e;
}

// One thread per query head, chunks in order.
__global__ void merge_chunks(ExpectedTask task) {
  const std::uint32_t q_head = blockIdx.x * blockDim.x + threadIdx.x;
  if (q_head >= task.d.num_kv_heads * task.d.group) return;
  Extremes e;
  for (std::uint32_t i = 0; i < task.chunks; ++i) {
    e = together(e, task.extremes[std::uint64_t{q_head} * task.chunks + i]);
  }
  task.softmax[q_head] = e;
}

// If values are weighed, d.scores holds -||v|| on input. grid (blocks, kv heads).
__global__ void expect(ExpectedTask task) {
  const ExpectedAttentionDevice& d = task.d;
  const std::uint32_t token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= d.num_tokens) return;
  float& score = d.scores[std::uint64_t{blockIdx.y} * d.num_tokens + token];
  float sum = 0;
  for (std::uint32_t g = 0; token >= d.sinks && g < d.group; ++g) {
    const std::uint64_t q_head = std::uint64_t{blockIdx.y} * d.group + g;
    const Extremes e = task.softmax[q_head];
    sum += exp_f32(task.logits[q_head * d.num_tokens + token] - e.largest) / e.sum;
  }
  const float mean = sum / static_cast<float>(d.group);
  score = d.weighs_values ? (mean + d.epsilon) * -score : mean;
  if (token < d.sinks) score = -kMinusInfinity;
}

// The number of KV heads whose logits take at most 8 B per KV head and token of the layer.
std::uint32_t heads_at_once(const ExpectedAttentionDevice& d) {
  return std::clamp(2 * d.num_kv_heads / d.group, 1u, d.num_kv_heads);
}

// The task with workspace for heads_at_once() KV heads.
ExpectedTask place(const ExpectedAttentionDevice& d, Workspace& space) {
  ExpectedTask task{d, ceil_div(d.num_tokens, kExpectedChunkTokens), nullptr, nullptr, nullptr};
  const std::size_t q_heads = std::size_t{heads_at_once(d)} * d.group;
  task.logits = space.take<float>(q_heads * d.num_tokens);
  task.extremes = space.take<Extremes>(q_heads * task.chunks);
  task.softmax = space.take<Extremes>(q_heads);
  return task;
}

// The part of `all` for `count` KV heads from `head` on.
ExpectedAttentionDevice heads_of(const ExpectedAttentionDevice& all, std::uint32_t head,
                                 std::uint32_t count) {
  ExpectedAttentionDevice d = all;
  const std::size_t rows = std::size_t{head} * d.num_tokens, q_head = std::size_t{head} * d.group;
  const std::size_t offset = rows * d.head_dim * dtype_size_bytes(d.dtype);
  d.num_kv_heads = count;
  d.keys = static_cast<const std::byte*>(d.keys) + offset;
  d.values = static_cast<const std::byte*>(d.values) + offset;
  d.means += q_head * d.head_dim;
  d.covariances += q_head * d.head_dim * d.head_dim;
  d.scores += rows;
  return d;
}

Status launch_logits(const ExpectedTask& task, Stream& stream) {
  const ExpectedAttentionDevice& d = task.d;
  const auto dim = static_cast<float>(d.head_dim);
  // mu.k / sqrt(d) + k^T Sigma k / (2 d)
  return launch_row_forms({d.num_kv_heads, d.group, d.num_tokens, d.head_dim, d.dtype, d.keys,
                           d.covariances, d.means, 2 * std::sqrt(dim), 1 / (2 * dim), task.logits},
                          stream);
}

Status launch_heads(const ExpectedTask& task, Stream& stream) {
  const ExpectedAttentionDevice& d = task.d;
  const std::uint32_t q_heads = d.num_kv_heads * d.group;
  PRECIS_TRY(launch_logits(task, stream));
  PRECIS_TRY(launch("expected attention: chunks", chunk_extremes, dim3(task.chunks, q_heads),
                    kElementwiseThreads, kElementwiseThreads / kWarp * sizeof(Extremes), stream,
                    task));
  PRECIS_TRY(launch("expected attention: merge", merge_chunks,
                    ceil_div(q_heads, kElementwiseThreads), kElementwiseThreads, 0, stream, task));
  const dim3 grid(ceil_div(d.num_tokens, kElementwiseThreads), d.num_kv_heads);
  return launch("expected attention: expect", expect, grid, kElementwiseThreads, 0, stream, task);
}

}  // namespace

std::size_t expected_attention_workspace_bytes(const ExpectedAttentionDevice& task) {
  Workspace space(nullptr);
  place(task, space);
  return space.size_bytes();
}

Status launch_expected_attention(const ExpectedAttentionDevice& all, void* workspace,
                                 Stream& stream) {
  Workspace space(workspace);
  ExpectedTask task = place(all, space);
  if (all.weighs_values) {
    PRECIS_TRY(launch_knorm({all.values, all.num_kv_heads, all.num_tokens, all.head_dim, all.dtype},
                            all.scores, stream));
  }
  const std::uint32_t step = heads_at_once(all);
  for (std::uint32_t head = 0; head < all.num_kv_heads; head += step) {
    task.d = heads_of(all, head, std::min(step, all.num_kv_heads - head));
    PRECIS_TRY(launch_heads(task, stream));
  }
  return {};
}

}  // namespace precis::kernels
