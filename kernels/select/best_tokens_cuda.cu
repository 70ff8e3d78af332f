// Top-k by radix, exact and deterministic. Per head:
//   1. the rank of the limit-th best token, digit by digit, by counting;
//   2. the tokens that rank before it, and of its equals the lowest ones, in the order of tokens;
//   3. a stable sort of these by rank, digit by digit.
// Each warp reads a consecutive run of the input, and counts before it writes. So the place of each
// output depends only on counts, not on the order in which warps run.
#include <algorithm>

#include "kernels/select/best_tokens_cuda.h"
#include "kernels/select/rank_search.cuh"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kWarps = kSelectThreads / kWarp;

struct Shared : RankSearch {
  std::uint32_t bins[kWarps][kBins];           // counts, then the next place of each digit
  std::uint32_t below[kWarps], equal[kWarps];  // of each warp's run
};

struct Run {
  std::uint32_t first, last;
};
// The run of `count` items that this warp reads: a multiple of the warp size, except at the end.
__device__ Run own_run(std::uint32_t count) {
  const std::uint32_t steps = (count + kSelectThreads - 1) / kSelectThreads;
  const std::uint32_t first = min(count, threadIdx.x / kWarp * steps * kWarp);
  return {first, min(count, first + steps * kWarp)};
}

__device__ std::uint32_t lanes_before() { return (1u << threadIdx.x % kWarp) - 1; }

// Writes the tokens that s.prefix and s.left select to `out`, ascending.
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

// Turns the counts of every warp and digit into places: digits ascending, then warps in order.
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
    __syncwarp();  // every lane reads its place before any lane updates it
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
