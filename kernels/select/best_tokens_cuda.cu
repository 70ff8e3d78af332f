// Top-k by radix, exact and the same every time. Per head:
//   1. the rank of the limit-th best, a digit at a time by counting;
//   2. the tokens that rank before it, and of its equals the lowest, in the order of tokens;
//   3. a stable sort of these by rank, a digit at a time.
// Warps own consecutive runs of what they read, and count before they write, so that places follow
// from counts alone and never from which warp comes first.
#include <algorithm>

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"
#include "kernels/select/best_tokens_cuda.h"
#include "kernels/select/select_op.h"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kWarps = kSelectThreads / kWarp;
constexpr std::uint32_t kBins = 256, kDigits = 4;
static_assert(kSelectThreads % kWarp == 0 && kSelectThreads >= kBins);

struct Shared {
  std::uint32_t bins[kWarps][kBins];  // counts, then where the next of its kind goes
  std::uint32_t totals[kBins];
  std::uint32_t below[kWarps], equal[kWarps];  // of each warp's run
  std::uint32_t prefix, left;                  // of the search for the limit-th best
};

// The better the lower.
__device__ std::uint32_t rank_of(const float* scores, std::uint32_t token) {
  return ~score_rank(scores[token]);
}
__device__ std::uint32_t digit_of(std::uint32_t rank, std::uint32_t digit) {
  return rank >> digit * 8 & (kBins - 1);
}

struct Run {
  std::uint32_t first, last;
};
// The run of `count` items that this warp owns: whole warps of items.
__device__ Run own_run(std::uint32_t count) {
  const std::uint32_t steps = (count + kSelectThreads - 1) / kSelectThreads;
  const std::uint32_t first = min(count, threadIdx.x / kWarp * steps * kWarp);
  return {first, min(count, first + steps * kWarp)};
}

__device__ std::uint32_t lanes_before() { return (1u << threadIdx.x % kWarp) - 1; }

// s.totals becomes how many stand before each bin. Every thread calls it.
__device__ void sum_totals(Shared& s) {
  __syncthreads();
  if (threadIdx.x < kWarp) {  // one warp, a run of bins per lane
    constexpr std::uint32_t kEach = kBins / kWarp;
    std::uint32_t own = 0;
    for (std::uint32_t i = 0; i < kEach; ++i) own += s.totals[threadIdx.x * kEach + i];
    std::uint32_t before = own;
    for (std::uint32_t step = 1; step < kWarp; step *= 2) {
      const std::uint32_t other = __shfl_up_sync(kWholeWarp, before, step);
      if (threadIdx.x >= step) before += other;
    }
    before -= own;
    for (std::uint32_t i = 0; i < kEach; ++i) {
      const std::uint32_t count = s.totals[threadIdx.x * kEach + i];
      s.totals[threadIdx.x * kEach + i] = before;
      before += count;
    }
  }
  __syncthreads();
}

// Leaves in s.prefix the rank of the limit-th best of the head and in s.left how many of that rank
// are among the best: from the highest digit on, the digit at which the count reaches the limit.
__device__ void find_last_rank(const float* scores, std::uint32_t first, std::uint32_t last,
                               std::uint32_t limit, Shared& s) {
  std::uint32_t prefix = 0, left = limit;
  for (std::uint32_t digit = kDigits; digit-- > 0;) {
    if (threadIdx.x < kBins) s.totals[threadIdx.x] = 0;
    __syncthreads();
    const std::uint32_t known = digit == kDigits - 1 ? 0 : 0xffffffffu << (digit + 1) * 8;
    for (std::uint32_t t = first + threadIdx.x; t < last; t += kSelectThreads) {
      const std::uint32_t rank = rank_of(scores, t);
      if ((rank & known) == prefix) atomicAdd(&s.totals[digit_of(rank, digit)], 1u);
    }
    __syncthreads();
    const std::uint32_t count = threadIdx.x < kBins ? s.totals[threadIdx.x] : 0;
    sum_totals(s);
    if (threadIdx.x < kBins) {
      const std::uint32_t before = s.totals[threadIdx.x];
      if (before < left && left <= before + count) {  // in exactly one bin
        s.prefix = prefix | threadIdx.x << digit * 8;
        s.left = left - before;
      }
    }
    __syncthreads();
    prefix = s.prefix;
    left = s.left;
    __syncthreads();
  }
}

// Writes the tokens that s.prefix and s.left tell, ascending, to `out`.
__device__ void gather_best(const float* scores, std::uint32_t first, std::uint32_t last, Shared& s,
                            std::uint32_t* out) {
  const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const Run run = own_run(last - first);
  std::uint32_t below = 0, equal = 0;
  for (std::uint32_t i = run.first; i < run.last; i += kWarp) {
    const bool inside = i + lane < run.last;
    const std::uint32_t rank = inside ? rank_of(scores, first + i + lane) : 0xffffffffu;
    below += __popc(__ballot_sync(kWholeWarp, inside && rank < s.prefix));
    equal += __popc(__ballot_sync(kWholeWarp, inside && rank == s.prefix));
  }
  if (lane == 0) {
    s.below[warp] = below;
    s.equal[warp] = equal;
  }
  __syncthreads();
  below = equal = 0;
  for (std::uint32_t w = 0; w < warp; ++w) {
    below += s.below[w];
    equal += s.equal[w];
  }
  for (std::uint32_t i = run.first; i < run.last; i += kWarp) {
    const std::uint32_t token = first + i + lane;
    const bool inside = i + lane < run.last;
    const std::uint32_t rank = inside ? rank_of(scores, token) : 0xffffffffu;
    const std::uint32_t is_below = __ballot_sync(kWholeWarp, inside && rank < s.prefix);
    const std::uint32_t is_equal = __ballot_sync(kWholeWarp, inside && rank == s.prefix);
    const std::uint32_t equals_before = equal + __popc(is_equal & lanes_before());
    const bool taken =
        (is_below >> lane & 1) != 0 || ((is_equal >> lane & 1) != 0 && equals_before < s.left);
    if (taken) {
      out[below + __popc(is_below & lanes_before()) + min(equals_before, s.left)] = token;
    }
    below += __popc(is_below);
    equal += __popc(is_equal);
  }
  __syncthreads();
}

// Turns the counts of every warp and digit into places: digits ascending, warps in their order.
__device__ void places_of_counts(Shared& s) {
  if (threadIdx.x < kBins) {
    std::uint32_t sum = 0;
    for (std::uint32_t w = 0; w < kWarps; ++w) {
      const std::uint32_t count = s.bins[w][threadIdx.x];
      s.bins[w][threadIdx.x] = sum;
      sum += count;
    }
    s.totals[threadIdx.x] = sum;
  }
  sum_totals(s);
  if (threadIdx.x < kBins) {
    for (std::uint32_t w = 0; w < kWarps; ++w) s.bins[w][threadIdx.x] += s.totals[threadIdx.x];
  }
  __syncthreads();
}

// Sorts `count` tokens by one digit of their ranks, keeping the order of equals.
__device__ void sort_by_digit(const float* scores, const std::uint32_t* from, std::uint32_t count,
                              std::uint32_t digit, Shared& s, std::uint32_t* to) {
  const std::uint32_t lane = threadIdx.x % kWarp;
  std::uint32_t* bins = s.bins[threadIdx.x / kWarp];
  const Run run = own_run(count);
  for (std::uint32_t i = lane; i < kBins; i += kWarp) bins[i] = 0;
  __syncwarp();
  for (std::uint32_t i = run.first + lane; i < run.last; i += kWarp) {
    atomicAdd(&bins[digit_of(rank_of(scores, from[i]), digit)], 1u);
  }
  __syncthreads();
  places_of_counts(s);
  for (std::uint32_t i = run.first; i < run.last; i += kWarp) {
    const bool inside = i + lane < run.last;
    const std::uint32_t token = inside ? from[i + lane] : 0;
    const std::uint32_t bin = inside ? digit_of(rank_of(scores, token), digit) : kBins;
    const std::uint32_t alike = __match_any_sync(kWholeWarp, bin);
    const std::uint32_t place = inside ? bins[bin] : 0;
    __syncwarp();  // every lane has its place before any moves on
    if (inside) to[place + __popc(alike & lanes_before())] = token;
    if (inside && (alike & lanes_before()) == 0) bins[bin] = place + __popc(alike);
    __syncwarp();
  }
  __syncthreads();
}

// grid (heads).
__global__ void __launch_bounds__(kSelectThreads)
    best_tokens(BestTokensDevice task, std::uint32_t* workspace) {
  auto& s = *shared_memory<Shared>();
  const std::uint32_t head = blockIdx.x, total = task.last - task.first;
  const std::uint32_t limit = task.limits == nullptr ? total : task.limits[head];
  if (limit == 0) return;
  const float* scores = task.scores + std::uint64_t{head} * task.stride;
  std::uint32_t* order = task.order + std::uint64_t{head} * task.order_stride + task.order_first;
  if (limit < total) {
    find_last_rank(scores, task.first, task.last, limit, s);
    gather_best(scores, task.first, task.last, s, order);
  } else {
    for (std::uint32_t i = threadIdx.x; i < total; i += kSelectThreads) order[i] = task.first + i;
    __syncthreads();
  }
  std::uint32_t *from = order, *to = workspace + std::uint64_t{head} * total;
  for (std::uint32_t digit = 0; digit < kDigits; ++digit) {
    sort_by_digit(scores, from, limit, digit, s, to);
    std::uint32_t* const sorted = to;
    to = from;
    from = sorted;
  }
  static_assert(kDigits % 2 == 0);  // so the last pass writes to `order`
}

}  // namespace

std::size_t best_tokens_workspace_bytes(const BestTokensDevice& task) {
  return std::size_t{task.num_heads} * (task.last - task.first) * sizeof(std::uint32_t);
}

Status launch_best_tokens(const BestTokensDevice& task, void* workspace, Stream& stream) {
  return launch("select: best tokens", best_tokens, task.num_heads, kSelectThreads, sizeof(Shared),
                stream, task, static_cast<std::uint32_t*>(workspace));
}

}  // namespace precis::kernels
