// select on CUDA: topk, partition_topk and chunk here; the selectors that rank twice are in
// merged_orders_cuda.cu.
#include "kernels/select/select_cuda.h"

#include <algorithm>

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"
#include "kernels/select/best_tokens_cuda.h"
#include "kernels/select/merged_orders_cuda.h"
#include "kernels/select/select_op.h"

namespace precis::kernels {
namespace {

struct Extent {
  std::uint32_t begin, end;  // the ranked tokens
  std::uint32_t guarded;     // protected tokens
  std::uint32_t count() const { return end - begin; }
};
Extent extent_of(const SegmentShape& shape) {
  return {shape.sinks, shape.num_tokens - shape.recent, shape.protected_count()};
}

__device__ std::uint32_t limit_of(const std::uint32_t* limits, std::uint32_t head,
                                  std::uint32_t ranked) {
  return limits == nullptr ? ranked : limits[head];
}

// Writes the sinks, ascending, then the recent tokens from the last backwards. grid (blocks,
// heads).
__global__ void protect(std::uint32_t sinks, std::uint32_t recent, std::uint32_t num_tokens,
                        std::uint32_t* order) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= sinks + recent) return;
  order[std::uint64_t{blockIdx.y} * num_tokens + i] = i < sinks ? i : num_tokens - 1 - (i - sinks);
}

struct PartitionTask {
  const float* scores;
  const std::uint32_t* limits;
  std::uint32_t* order;
  std::uint32_t num_tokens, lag;
  Extent ranked;
};

// One thread per ranked token: it counts the tokens before its token in the partition. The token's
// place follows, because all partitions except the last are full. grid (blocks, heads).
__global__ void rank_in_partitions(PartitionTask task) {
  const Extent& ranked = task.ranked;
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t count = ranked.end - ranked.begin;
  if (i >= count) return;
  const float* scores = task.scores + std::uint64_t{blockIdx.y} * task.num_tokens + ranked.begin;
  const std::uint32_t partition = i / task.lag, first = partition * task.lag;
  const std::uint32_t last = min(count, first + task.lag);
  const std::uint64_t key = retention_key(scores[i], i);
  std::uint32_t rank = 0;
  for (std::uint32_t t = first; t < last; ++t) {
    rank += static_cast<std::uint32_t>(retention_key(scores[t], t) < key);
  }
  const std::uint64_t partitions = (count - 1) / task.lag + 1;
  const std::uint64_t short_length = count - (partitions - 1) * task.lag;  // of the last partition
  std::uint64_t place = rank * partitions + partition;
  if (rank >= short_length) place -= rank - short_length;
  if (place >= limit_of(task.limits, blockIdx.y, count)) return;
  task.order[std::uint64_t{blockIdx.y} * task.num_tokens + ranked.guarded + place] =
      ranked.begin + i;
}

struct ChunkTask {
  const float* scores;
  const std::uint32_t* limits;
  std::uint32_t* order;
  std::uint32_t num_tokens, num_heads, chunk, runs;
  Extent ranked;
  float* means;         // [runs]
  std::uint32_t* best;  // [runs], the runs in their order
  std::uint32_t* last;  // the index in `best` of the last run, which may be short
};

// One thread per run; heads and tokens ascending, as on the CPU.
__global__ void mean_of_runs(ChunkTask task) {
  const std::uint32_t run = blockIdx.x * blockDim.x + threadIdx.x;
  if (run >= task.runs) return;
  const std::uint32_t first = task.ranked.begin + run * task.chunk;
  const std::uint32_t count = min(task.chunk, task.ranked.end - first);
  double sum = 0;
  for (std::uint32_t h = 0; h < task.num_heads; ++h) {
    const float* scores = task.scores + std::uint64_t{h} * task.num_tokens + first;
    for (std::uint32_t i = 0; i < count; ++i) sum += scores[i];
  }
  task.means[run] = static_cast<float>(sum / count);
}

__global__ void find_last_run(ChunkTask task) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < task.runs && task.best[i] == task.runs - 1) *task.last = i;
}

// One thread per token of the order. grid (blocks, heads).
__global__ void spread_runs(ChunkTask task) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t count = task.ranked.end - task.ranked.begin;
  if (i >= limit_of(task.limits, blockIdx.y, count)) return;
  const std::uint32_t missing = task.runs * task.chunk - count;  // of the last run
  const std::uint32_t short_end = (*task.last + 1) * task.chunk - missing;
  const std::uint32_t place = i < short_end ? i : i + missing;
  task.order[std::uint64_t{blockIdx.y} * task.num_tokens + task.ranked.guarded + i] =
      task.ranked.begin + task.best[place / task.chunk] * task.chunk + place % task.chunk;
}

std::uint32_t runs_of(const SelectDevice& task) {
  return ceil_div(extent_of(task.shape).count(), task.chunk);
}

Status launch_topk(const SelectDevice& task, void* workspace, Stream& stream) {
  const Extent ranked = extent_of(task.shape);
  const std::uint32_t n = task.shape.num_tokens;
  return launch_best_tokens({task.scores, task.num_heads, n, ranked.begin, ranked.end, task.limits,
                             task.order, ranked.guarded, n},
                            workspace, stream);
}

Status launch_partition_topk(const SelectDevice& task, Stream& stream) {
  const PartitionTask partitions{task.scores,           task.limits,    task.order,
                                 task.shape.num_tokens, task.shape.lag, extent_of(task.shape)};
  const dim3 grid(ceil_div(partitions.ranked.count(), kElementwiseThreads), task.num_heads);
  return launch("select: partitions", rank_in_partitions, grid, kElementwiseThreads, 0, stream,
                partitions);
}

Status launch_chunk(const SelectDevice& task, void* workspace, Stream& stream) {
  const std::uint32_t runs = runs_of(task);
  ChunkTask chunk{task.scores,
                  task.limits,
                  task.order,
                  task.shape.num_tokens,
                  task.num_heads,
                  task.chunk,
                  runs,
                  extent_of(task.shape),
                  {},
                  {},
                  {}};
  chunk.means = static_cast<float*>(workspace);
  chunk.best = reinterpret_cast<std::uint32_t*>(chunk.means + runs);
  chunk.last = chunk.best + runs;
  const std::uint32_t blocks = ceil_div(runs, kElementwiseThreads);
  PRECIS_TRY(launch("select: runs", mean_of_runs, blocks, kElementwiseThreads, 0, stream, chunk));
  // `order` is not written yet, so it serves as the sort's workspace.
  PRECIS_TRY(launch_best_tokens({chunk.means, 1, runs, 0, runs, nullptr, chunk.best, 0, runs},
                                task.order, stream));
  PRECIS_TRY(
      launch("select: last run", find_last_run, blocks, kElementwiseThreads, 0, stream, chunk));
  const dim3 grid(ceil_div(chunk.ranked.count(), kElementwiseThreads), task.num_heads);
  return launch("select: runs of tokens", spread_runs, grid, kElementwiseThreads, 0, stream, chunk);
}

Status launch_ranked(const SelectDevice& task, void* workspace, Stream& stream) {
  if (extent_of(task.shape).count() == 0) return {};
  switch (task.selector) {
    case Selector::kTopk: return launch_topk(task, workspace, stream);
    case Selector::kPartitionTopk: return launch_partition_topk(task, stream);
    case Selector::kChunk: return launch_chunk(task, workspace, stream);
    case Selector::kTwoStage:
    case Selector::kThreshold: break;
  }
  return launch_merged_orders(task, workspace, stream);
}

}  // namespace

SelectDevice SelectDevice::of(const Recipe& recipe, const LayerInput& input) {
  SelectDevice task;
  task.selector = recipe.selector;
  task.shape = SegmentShape::of(recipe, input.layer, input.begin, input.num_tokens());
  task.num_heads = input.num_kv_heads();
  task.chunk = recipe.chunk;
  task.first_stage = FirstStage::of(recipe, input, task.shape.protected_count());
  task.mass_ppm = recipe.mass_ppm;
  return task;
}

std::size_t select_workspace_bytes(const SelectDevice& task) {
  const std::size_t ranked = std::size_t{task.num_heads} * extent_of(task.shape).count();
  switch (task.selector) {
    case Selector::kTopk: return ranked * sizeof(std::uint32_t);
    case Selector::kPartitionTopk: return 0;
    case Selector::kChunk: return (2 * std::size_t{runs_of(task)} + 1) * sizeof(std::uint32_t);
    case Selector::kTwoStage:
    case Selector::kThreshold: break;
  }
  return 2 * ranked * sizeof(std::uint32_t);
}

Status launch_select(const SelectDevice& task, void* workspace, Stream& stream) {
  PRECIS_TRY(launch_ranked(task, workspace, stream));
  const std::uint32_t guarded = task.shape.protected_count();
  const dim3 grid(ceil_div(guarded, kElementwiseThreads), task.num_heads);
  return launch("select: protected", protect, grid, kElementwiseThreads, 0, stream,
                task.shape.sinks, task.shape.recent, task.shape.num_tokens, task.order);
}

}  // namespace precis::kernels
