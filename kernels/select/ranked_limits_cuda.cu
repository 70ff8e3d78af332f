// How far heads are ranked, on CUDA. The CPU tries bounds from a sample, each wider than the one
// before, until one is wide enough (shares_of_best). The indices of these bounds in the sorted
// sample depend only on sizes, so here all bounds are tried at once and the first that is wide
// enough is used:
//   sample_scores   some scores of every head
//   find_bounds     the rank of each bound
//   count_up_to     how many of each head rank at or before each bound
//   choose_bound    the first bound that is wide enough, and the limits that follow
#include "kernels/select/ranked_limits_cuda.h"

#include "kernels/common/workspace.h"
#include "kernels/select/rank_search.cuh"
#include "precis/limits.h"

namespace precis::kernels {
namespace {

// `doubt` doubles from bound to bound, and each doubling moves the bound by at least one sampled
// score, so this many bounds are enough.
constexpr std::uint32_t kBoundsMax = 24;
static_assert(std::max(kLayerSampleSize, limits::kKvHeadsMax) < 1u << (kBoundsMax - 1));

constexpr std::uint32_t kCountTokens = 16 * kElementwiseThreads;  // of a block

struct LimitsTask {
  RankedLimitsDevice d;
  std::uint32_t taken;       // sampled tokens of each head
  std::uint32_t num_bounds;  // the last bound takes everything
  std::uint32_t at[kBoundsMax];
  float* sample;          // [num_heads * taken]
  std::uint32_t* bounds;  // [num_bounds]
  std::uint32_t* counts;  // [num_bounds, num_heads]
};

// Sets the same limit for every head.
__global__ void fill_limits(RankedLimitsDevice d, std::uint32_t limit) {
  const std::uint32_t head = blockIdx.x * blockDim.x + threadIdx.x;
  if (head < d.num_heads) d.limits[head] = limit;
}

// grid (blocks, heads).
__global__ void sample_scores(LimitsTask task) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= task.taken) return;
  const std::uint64_t token =
      task.d.first + sampled_token(i, task.d.last - task.d.first, task.taken);
  task.sample[std::uint64_t{blockIdx.y} * task.taken + i] =
      task.d.scores[std::uint64_t{blockIdx.y} * task.d.num_tokens + token];
}

// grid (bounds).
__global__ void __launch_bounds__(kSelectThreads) find_bounds(LimitsTask task) {
  auto& s = *shared_memory<RankSearch>();
  std::uint32_t* counts = task.counts + std::uint64_t{blockIdx.x} * task.d.num_heads;
  for (std::uint32_t h = threadIdx.x; h < task.d.num_heads; h += blockDim.x) counts[h] = 0;
  std::uint32_t bound = 0xffffffffu;
  if (blockIdx.x + 1 < task.num_bounds) {
    find_last_rank(task.sample, 0, task.d.num_heads * task.taken, task.at[blockIdx.x] + 1, s);
    bound = s.prefix;
  }
  if (threadIdx.x == 0) task.bounds[blockIdx.x] = bound;
}

// grid (blocks, heads). Integer sums, so the order of additions does not matter.
__global__ void count_up_to(LimitsTask task) {
  const float* scores = task.d.scores + std::uint64_t{blockIdx.y} * task.d.num_tokens;
  const std::uint32_t first = task.d.first + blockIdx.x * kCountTokens;
  const std::uint32_t last = min(task.d.last, first + kCountTokens);
  std::uint32_t counts[kBoundsMax] = {};
  for (std::uint32_t t = first + threadIdx.x; t < last; t += blockDim.x) {
    const std::uint32_t rank = rank_of(scores, t);
#pragma unroll
    for (std::uint32_t k = 0; k < kBoundsMax; ++k) {
      if (k < task.num_bounds) counts[k] += static_cast<std::uint32_t>(rank <= task.bounds[k]);
    }
  }
#pragma unroll
  for (std::uint32_t k = 0; k < kBoundsMax; ++k) {
    if (k >= task.num_bounds) continue;
    std::uint32_t sum = counts[k];
    for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, step);
    if (threadIdx.x % kWarp == 0) {
      atomicAdd(&task.counts[std::uint64_t{k} * task.d.num_heads + blockIdx.y], sum);
    }
  }
}

// One block.
__global__ void choose_bound(LimitsTask task) {
  auto* sums = shared_memory<std::uint64_t>();  // [num_bounds]
  const std::uint32_t heads = task.d.num_heads;
  if (threadIdx.x < task.num_bounds) {
    std::uint64_t sum = 0;
    for (std::uint32_t h = 0; h < heads; ++h) sum += task.counts[threadIdx.x * heads + h];
    sums[threadIdx.x] = sum;
  }
  __syncthreads();
  std::uint32_t k = 0;
  while (k + 1 < task.num_bounds && sums[k] < task.d.of_layer.wanted) ++k;
  for (std::uint32_t h = threadIdx.x; h < heads; h += blockDim.x) {
    task.d.limits[h] =
        static_cast<std::uint32_t>(task.d.of_layer.limit(task.counts[k * heads + h]));
  }
}

std::uint64_t total_of(const RankedLimitsDevice& d) {
  return std::uint64_t{d.num_heads} * (d.last - d.first);
}
// Whether a sample is needed. If nothing is wanted, the CPU tries no bound either.
bool samples(const RankedLimitsDevice& d) {
  return d.of_layer.compete && d.of_layer.wanted > 0 &&
         !wants_nearly_all(d.of_layer.wanted, total_of(d));
}

LimitsTask task_of(const RankedLimitsDevice& d, Workspace& space) {
  LimitsTask task{};
  task.d = d;
  if (!samples(d)) return task;
  task.taken = std::min(sample_of_head(d.num_heads), d.last - d.first);
  const std::size_t size = std::size_t{d.num_heads} * task.taken;
  std::size_t at = 0;
  for (double doubt = 1; at < size; doubt *= 2) {
    at = sample_index(size, d.of_layer.wanted, total_of(d), doubt);
    task.at[task.num_bounds++] = static_cast<std::uint32_t>(std::min(at, size));
  }
  task.sample = space.take<float>(size);
  task.bounds = space.take<std::uint32_t>(task.num_bounds);
  task.counts = space.take<std::uint32_t>(std::size_t{task.num_bounds} * d.num_heads);
  return task;
}

}  // namespace

RankedLimitsDevice RankedLimitsDevice::of(const Recipe& recipe, const SegmentShape& shape,
                                          std::uint32_t num_heads, std::uint64_t slots) {
  RankedLimitsDevice task;
  task.of_layer = RankedLimits::of(recipe, shape, num_heads, slots);
  task.num_heads = num_heads;
  task.num_tokens = shape.num_tokens;
  task.first = shape.sinks;
  task.last = shape.num_tokens - shape.recent;
  return task;
}

std::size_t ranked_limits_workspace_bytes(const RankedLimitsDevice& d) {
  Workspace space(nullptr);
  task_of(d, space);
  return space.size_bytes();
}

Status launch_ranked_limits(const RankedLimitsDevice& d, void* workspace, Stream& stream) {
  if (!samples(d)) {  // a head's share is all of it, or has no effect
    const auto limit = static_cast<std::uint32_t>(d.of_layer.limit(d.last - d.first));
    return launch("ranked limits: fill", fill_limits, ceil_div(d.num_heads, kElementwiseThreads),
                  kElementwiseThreads, 0, stream, d, limit);
  }
  Workspace space(workspace);
  const LimitsTask task = task_of(d, space);
  PRECIS_TRY(launch("ranked limits: sample", sample_scores,
                    dim3(ceil_div(task.taken, kElementwiseThreads), d.num_heads),
                    kElementwiseThreads, 0, stream, task));
  PRECIS_TRY(launch("ranked limits: bounds", find_bounds, task.num_bounds, kSelectThreads,
                    sizeof(RankSearch), stream, task));
  PRECIS_TRY(launch("ranked limits: count", count_up_to,
                    dim3(ceil_div(d.last - d.first, kCountTokens), d.num_heads),
                    kElementwiseThreads, 0, stream, task));
  return launch("ranked limits: choose", choose_bound, 1, kElementwiseThreads,
                kBoundsMax * sizeof(std::uint64_t), stream, task);
}

}  // namespace precis::kernels
