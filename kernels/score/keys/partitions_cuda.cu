// LagKV and LocalKV on CUDA (policies/scores.md, "LagKV and LocalKV"). One block of threads per
// partition of one head computes the ranges of channels, the spread of each row within them, and
// their softmax; K first, then V.
#include "kernels/score/keys/partitions_cuda.h"

#include <algorithm>

#include "kernels/common/tuning.h"
#include "kernels/score/keys/partitions_op.h"
#include "kernels/score/keys/rows.cuh"
#include "kernels/select/select_op.h"

namespace precis::kernels {
namespace {

constexpr float kInfinity = __builtin_huge_valf();
constexpr std::uint32_t kWarps = kElementwiseThreads / kWarp;

struct PartitionTask {
  RowsDevice rows[2];  // of K and of V
  std::uint32_t num_tokens, sinks, lag, ahead;
  bool kvpress_ranks;
  float* scores;
  float* spreads;  // [heads, num_tokens]
};

struct Shared {
  float low[limits::kHeadDimMax], high[limits::kHeadDimMax];  // of each channel
  float of_warps[kWarps];
};

__global__ void fill_infinity(std::uint64_t count, float* out) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = kInfinity;
}

// The channels that a lane holds of every row: their lowest values and stretches.
template <int kEach, int kUnits>
struct ChannelRanges {
  float low[kUnits][kEach], stretch[kUnits][kEach];
};

// The ranges over `count` rows from `first` on. Each lane takes the ranges of its channels over its
// rows. Shuffles combine the rows of a warp; the warps are combined one by one in shared memory.
template <int kEach, int kUnits>
__device__ ChannelRanges<kEach, kUnits> channel_ranges(const RowsDevice& rows, std::uint64_t first,
                                                       std::uint32_t count, Shared& s) {
  float low[kUnits][kEach], high[kUnits][kEach];
#pragma unroll
  for (int i = 0; i < kUnits * kEach; ++i) {
    low[i / kEach][i % kEach] = kInfinity;
    high[i / kEach][i % kEach] = -kInfinity;
  }
  RowPart<kEach, kUnits> part;
#pragma unroll 4
  for (std::uint32_t t = rows.group(); t < count; t += rows.groups()) {
    part.load(rows, first + t, true);
#pragma unroll
    for (int i = 0; i < kUnits * kEach; ++i) {
      const float x = part.x[i / kEach][i % kEach];
      low[i / kEach][i % kEach] = fminf(low[i / kEach][i % kEach], x);
      high[i / kEach][i % kEach] = fmaxf(high[i / kEach][i % kEach], x);
    }
  }
#pragma unroll
  for (int i = 0; i < kUnits * kEach; ++i) {
    float &least = low[i / kEach][i % kEach], &most = high[i / kEach][i % kEach];
    for (std::uint32_t step = rows.lanes; step < kWarp; step *= 2) {
      least = fminf(least, __shfl_xor_sync(kWholeWarp, least, static_cast<int>(step)));
      most = fmaxf(most, __shfl_xor_sync(kWholeWarp, most, static_cast<int>(step)));
    }
  }
  // Calls fn(channel, unit, element) for every channel that this lane holds.
  const auto each_channel = [&rows](const auto& fn) {
#pragma unroll
    for (int i = 0; i < kUnits * kEach; ++i) {
      const std::uint32_t unit = rows.lane() + static_cast<std::uint32_t>(i / kEach) * rows.lanes;
      if (unit >= rows.units) continue;
      fn(unit * kEach + static_cast<std::uint32_t>(i % kEach), i / kEach, i % kEach);
    }
  };
  for (std::uint32_t w = 0; w < kWarps; ++w) {
    if (threadIdx.x / kWarp == w && threadIdx.x % kWarp < rows.lanes) {
      each_channel([&](std::uint32_t c, int u, int e) {
        s.low[c] = w == 0 ? low[u][e] : fminf(s.low[c], low[u][e]);
        s.high[c] = w == 0 ? high[u][e] : fmaxf(s.high[c], high[u][e]);
      });
    }
    __syncthreads();
  }
  ChannelRanges<kEach, kUnits> ranges{};
  each_channel([&](std::uint32_t c, int u, int e) {
    ranges.low[u][e] = s.low[c];
    ranges.stretch[u][e] = lag_stretch(s.low[c], s.high[c]);
  });
  return ranges;
}

// A reduction over all threads of the block; `added` combines two values. The order is always the
// same.
template <typename Added>
__device__ float over_block(float x, Shared& s, const Added& added) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    x = added(x, __shfl_xor_sync(kWholeWarp, x, step));
  }
  if (threadIdx.x % kWarp == 0) s.of_warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = s.of_warps[0];
  for (std::uint32_t w = 1; w < kWarps; ++w) x = added(x, s.of_warps[w]);
  __syncthreads();
  return x;
}

// spreads[t] = the unbiased standard deviation over channels of row first + t, normalised.
template <int kEach, int kUnits>
__device__ void row_spreads(const RowsDevice& rows, std::uint64_t first, std::uint32_t count,
                            const ChannelRanges<kEach, kUnits>& ranges, float* spreads) {
  const auto dim = static_cast<float>(rows.dim);
  RowPart<kEach, kUnits> part;
#pragma unroll 2
  for (std::uint32_t t0 = 0; t0 < count; t0 += rows.groups()) {
    const std::uint32_t t = t0 + rows.group();
    part.load(rows, first + t, t < count);
#pragma unroll
    for (int i = 0; i < kUnits * kEach; ++i) {
      float& x = part.x[i / kEach][i % kEach];
      x = (x - ranges.low[i / kEach][i % kEach]) * ranges.stretch[i / kEach][i % kEach];
    }
    float sum = 0, square = 0;
    part.each(rows, [&](std::uint32_t, float x) { sum += x; });
    const float mean = sum_over_row(sum, rows.lanes) / dim;
    part.each(rows, [&](std::uint32_t, float x) { square += (x - mean) * (x - mean); });
    square = sum_over_row(square, rows.lanes);
    if (rows.lane() == 0 && t < count) {
      spreads[t] = rows.dim > 1 ? sqrtf(square / (dim - 1)) : 0.0f;
    }
  }
  __syncthreads();
}

// kvpress 0.5.5 without cross_scoring: a token's rank within its partition, ascending, over lag.
__device__ void to_kvpress_ranks(std::uint32_t lag, float* scores, float* scratch) {
  for (std::uint32_t t = threadIdx.x; t < lag; t += blockDim.x) {
    const std::uint32_t own = score_rank(scores[t]);
    std::uint32_t rank = 0;
    for (std::uint32_t u = 0; u < lag; ++u) {
      const std::uint32_t other = score_rank(scores[u]);
      rank += static_cast<std::uint32_t>(other < own || (other == own && u < t));
    }
    scratch[t] = static_cast<float>(rank) / static_cast<float>(lag);
  }
  __syncthreads();
  for (std::uint32_t t = threadIdx.x; t < lag; t += blockDim.x) scores[t] = scratch[t];
}

// grid (scored partitions, heads).
template <int kEach, int kUnits>
__global__ void score_partition(PartitionTask task) {
  auto& s = *shared_memory<Shared>();
  const std::uint64_t first =
      std::uint64_t{blockIdx.y} * task.num_tokens + task.sinks + blockIdx.x * task.lag;
  float *spreads = task.spreads + first, *scores = task.scores + first;
  for (int which = 0; which < 2; ++which) {
    const RowsDevice& rows = task.rows[which];
    const auto ranges = channel_ranges<kEach, kUnits>(rows, first + task.ahead, task.lag, s);
    row_spreads<kEach, kUnits>(rows, first, task.lag, ranges, spreads);
    float largest = 0, total = 0;
    for (std::uint32_t t = threadIdx.x; t < task.lag; t += blockDim.x) {
      largest = fmaxf(largest, spreads[t]);
    }
    largest = over_block(largest, s, [](float a, float b) { return fmaxf(a, b); });
    for (std::uint32_t t = threadIdx.x; t < task.lag; t += blockDim.x) {
      spreads[t] = exp_f32(spreads[t] - largest);
      total += spreads[t];
    }
    total = over_block(total, s, [](float a, float b) { return a + b; });
    for (std::uint32_t t = threadIdx.x; t < task.lag; t += blockDim.x) {
      scores[t] = (which == 0 ? 0.0f : scores[t]) + spreads[t] / total;
    }
    __syncthreads();
  }
  if (task.kvpress_ranks) to_kvpress_ranks(task.lag, scores, spreads);
}

}  // namespace

std::size_t partitions_workspace_bytes(const PartitionsDevice& task) {
  return std::size_t{task.num_heads} * task.shape.num_tokens * sizeof(float);
}

Status launch_partitions(const PartitionsDevice& task, void* workspace, Stream& stream) {
  const SegmentShape& shape = task.shape;
  const std::uint64_t count = std::uint64_t{task.num_heads} * shape.num_tokens;
  PRECIS_TRY(launch("partitions: fill", fill_infinity, ceil_div(count, kElementwiseThreads),
                    kElementwiseThreads, 0, stream, count, task.scores));
  if (!shape.has_scored_partitions()) return {};
  const RowsDevice keys = rows_of(task.keys, task.dtype, task.head_dim);
  const RowsDevice values = rows_of(task.values, task.dtype, task.head_dim);
  const PartitionTask partitions{
      {keys, values}, shape.num_tokens,   shape.sinks, shape.lag,
      task.ahead,     task.kvpress_ranks, task.scores, static_cast<float*>(workspace)};
  return for_rows(keys, [&]<int kEach, int kUnits>() {
    return launch("partitions: score", score_partition<kEach, kUnits>,
                  dim3(shape.num_partitions() - 1, task.num_heads), kElementwiseThreads,
                  sizeof(Shared), stream, partitions);
  });
}

}  // namespace precis::kernels
