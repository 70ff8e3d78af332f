// Steps over a layer's scores on CUDA: one thread per token, or one block of threads per head if a
// head is summed up.
#include "kernels/score/score_steps_cuda.h"

#include <cmath>

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"
#include "kernels/common/workspace.h"
#include "kernels/score/layer_weight_op.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kWarps = kElementwiseThreads / kWarp;

// A reduction over all threads of the block, the same in each thread; `added` combines two values,
// always in the same order. of_warps: [kWarps], shared memory.
template <typename T, typename Added>
__device__ T over_block(T x, T* of_warps, const Added& added) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    x = added(x, __shfl_xor_sync(kWholeWarp, x, step));
  }
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = of_warps[0];
  for (std::uint32_t w = 1; w < kWarps; ++w) x = added(x, of_warps[w]);
  __syncthreads();
  return x;
}
template <typename T>
__device__ T sum_over_block(T x, T* of_warps) {
  return over_block(x, of_warps, [](T a, T b) { return a + b; });
}

// grid (blocks, heads).
__global__ void second_stage(ColumnsDevice c, float epsilon, float* norms) {
  const std::uint32_t token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= c.num_tokens) return;
  const std::uint64_t i = std::uint64_t{blockIdx.y} * c.num_tokens + token;
  norms[i] *= c.scores[i] + epsilon;
}

// grid (blocks); heads ascending.
__global__ void share_mean(ColumnsDevice c) {
  const std::uint32_t token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= c.num_tokens) return;
  double sum = 0;
  for (std::uint32_t h = 0; h < c.num_heads; ++h) {
    sum += c.scores[std::uint64_t{h} * c.num_tokens + token];
  }
  const auto mean = static_cast<float>(sum / c.num_heads);
  for (std::uint32_t h = 0; h < c.num_heads; ++h) {
    c.scores[std::uint64_t{h} * c.num_tokens + token] = mean;
  }
}

// grid (blocks, heads).
__global__ void multiply(ColumnsDevice c, const float* norms) {
  const std::uint32_t token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= c.columns) return;
  const std::uint64_t i = std::uint64_t{blockIdx.y} * c.num_tokens + token;
  c.scores[i] *= norms[i];
}

// grid (heads).
__global__ void multiply_by_largest(ColumnsDevice c, const float* norms) {
  auto* of_warps = shared_memory<float>();
  const std::uint64_t first = std::uint64_t{blockIdx.x} * c.num_tokens;
  float largest = 0;
  for (std::uint32_t t = threadIdx.x; t < c.num_tokens; t += blockDim.x) {
    largest = fmaxf(largest, norms[first + t]);
  }
  largest = over_block(largest, of_warps, [](float a, float b) { return fmaxf(a, b); });
  for (std::uint32_t t = threadIdx.x; t < c.columns; t += blockDim.x) {
    c.scores[first + t] *= largest;
  }
}

// grid (heads).
__global__ void raise_to_mean(ColumnsDevice c) {
  float* scores = c.scores + std::uint64_t{blockIdx.x} * c.num_tokens;
  double sum = 0;
  for (std::uint32_t t = threadIdx.x; t < c.columns; t += blockDim.x) sum += scores[t];
  sum = sum_over_block(sum, shared_memory<double>());
  const auto mean = static_cast<float>(sum / c.columns);
  for (std::uint32_t t = threadIdx.x; t < c.columns; t += blockDim.x) {
    scores[t] = fmaxf(scores[t], mean);
  }
}

// grid (blocks); heads ascending.
__global__ void share_of_heads(ColumnsDevice c, float* norms) {
  const std::uint32_t token = blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= c.num_tokens) return;
  double sum = 0;
  for (std::uint32_t h = 0; h < c.num_heads; ++h) {
    sum += norms[std::uint64_t{h} * c.num_tokens + token];
  }
  if (!(sum > 0)) return;
  for (std::uint32_t h = 0; h < c.num_heads; ++h) {
    float& norm = norms[std::uint64_t{h} * c.num_tokens + token];
    norm = static_cast<float>(norm / sum);
  }
}

struct ShareSums {
  double total, sum;  // of s and of s ln s
};
struct EntropyTask {
  ColumnsDevice c;
  std::uint32_t sinks, last;  // tokens [sinks, last) are ranked
  std::uint32_t blocks;       // per head
  ShareSums* sums;            // [num_heads * blocks]
  float* weight;
};

// grid (blocks, heads).
__global__ void sum_shares(EntropyTask task) {
  auto* of_warps = shared_memory<double>();
  const std::uint32_t token = blockIdx.x * blockDim.x + threadIdx.x;
  double s = 0;
  if (token >= task.sinks && token < task.last) {
    const float score = task.c.scores[std::uint64_t{blockIdx.y} * task.c.num_tokens + token];
    if (is_share(score)) s = score;
  }
  const double total = sum_over_block(s, of_warps);
  const double sum = sum_over_block(s > 0 ? s * log(s) : 0.0, of_warps);
  if (threadIdx.x == 0) task.sums[blockIdx.y * task.blocks + blockIdx.x] = {total, sum};
}

// One block. Each thread sums every blockDim.x-th pair.
__global__ void entropy_of_sums(EntropyTask task) {
  auto* of_warps = shared_memory<double>();
  double total = 0, sum = 0;
  for (std::uint32_t i = threadIdx.x; i < task.c.num_heads * task.blocks; i += blockDim.x) {
    total += task.sums[i].total;
    sum += task.sums[i].sum;
  }
  total = sum_over_block(total, of_warps);
  sum = sum_over_block(sum, of_warps);
  if (threadIdx.x != 0) return;
  const std::uint64_t count = std::uint64_t{task.c.num_heads} * task.c.num_tokens;
  *task.weight = weight_of_shares(total, sum, count);
}

std::uint32_t blocks_of(const ColumnsDevice& c) {
  return ceil_div(c.num_tokens, kElementwiseThreads);
}
dim3 grid_of(const ColumnsDevice& c) { return {blocks_of(c), c.num_heads, 1}; }

EntropyTask entropy_task(const ColumnsDevice& c, Workspace& workspace) {
  EntropyTask task{c, 0, 0, blocks_of(c), nullptr, nullptr};
  task.sums = workspace.take<ShareSums>(std::size_t{c.num_heads} * task.blocks);
  return task;
}

}  // namespace

Status launch_second_stage(const ColumnsDevice& c, float epsilon, float* norms, Stream& stream) {
  return launch("second stage", second_stage, grid_of(c), kElementwiseThreads, 0, stream, c,
                epsilon, norms);
}

Status launch_share_mean(const ColumnsDevice& c, Stream& stream) {
  return launch("mean over heads", share_mean, blocks_of(c), kElementwiseThreads, 0, stream, c);
}

Status launch_multiply(const ColumnsDevice& c, const float* norms, Stream& stream) {
  return launch("columns x norms", multiply, grid_of(c), kElementwiseThreads, 0, stream, c, norms);
}

Status launch_multiply_by_largest(const ColumnsDevice& c, const float* norms, Stream& stream) {
  return launch("columns x largest norm", multiply_by_largest, c.num_heads, kElementwiseThreads,
                kWarps * sizeof(float), stream, c, norms);
}

Status launch_raise_to_mean(const ColumnsDevice& c, Stream& stream) {
  return launch("raise to mean", raise_to_mean, c.num_heads, kElementwiseThreads,
                kWarps * sizeof(double), stream, c);
}

Status launch_share_of_heads(const ColumnsDevice& c, float* norms, Stream& stream) {
  return launch("shares of heads", share_of_heads, blocks_of(c), kElementwiseThreads, 0, stream, c,
                norms);
}

std::size_t entropy_weight_workspace_bytes(const ColumnsDevice& c) {
  Workspace workspace(nullptr);
  entropy_task(c, workspace);
  return workspace.size_bytes();
}

Status launch_entropy_weight(const SegmentShape& shape, const ColumnsDevice& c, void* workspace,
                             float* weight, Stream& stream) {
  Workspace space(workspace);
  EntropyTask task = entropy_task(c, space);
  task.sinks = shape.sinks;
  task.last = shape.num_tokens - shape.recent;
  task.weight = weight;
  PRECIS_TRY(launch("entropy: shares", sum_shares, grid_of(c), kElementwiseThreads,
                    kWarps * sizeof(double), stream, task));
  return launch("entropy: weight", entropy_of_sums, 1, kElementwiseThreads, kWarps * sizeof(double),
                stream, task);
}

}  // namespace precis::kernels
