// Contests on CUDA. The CPU walks from the first seat to the last; here every warp walks a few
// rounds (a round gives each head one seat on average). A warp finds the counts at its first seat
// by search: after `a` rounds, head c holds max(its guarantee, its number of scores above a bound),
// where the bound is chosen so that the counts of all heads add up to the seats of `a` rounds. One
// lane per head.
#include "kernels/allocate/allocate_cuda.h"

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"
#include "kernels/select/select_op.h"

namespace precis::kernels {
namespace {

__global__ void take_turns(std::uint32_t num_heads, std::uint64_t seats, std::uint16_t* heads) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < seats) heads[i] = static_cast<std::uint16_t>(i % num_heads);
}

// The ranked scores of this lane's head.
struct Competitor {
  const float* scores;
  const std::uint32_t* best;
  std::uint32_t size;  // 0 in lanes without a head
  __device__ std::uint32_t rank(std::uint32_t k) const { return score_rank(scores[best[k]]); }
  // How many entries rank above `bound`, known to be in [low, high].
  __device__ std::uint32_t above(std::uint32_t bound, std::uint32_t low, std::uint32_t high) const {
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (rank(middle) > bound) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

__device__ std::uint64_t warp_sum(std::uint64_t x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kWholeWarp, x, step);
  return x;
}
__device__ std::uint64_t warp_largest(std::uint64_t x) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    x = max(x, __shfl_xor_sync(kWholeWarp, x, step));
  }
  return x;
}

// How many entries this lane's head holds once all heads together hold `total`. A head holds at
// least `sure` entries, or all its entries if it has fewer. The search finds the lowest rank bound
// at which the heads hold at most `total`; entries of exactly that rank go to the lower heads
// first. Each tried bound also narrows the search within a head's list for later bounds.
__device__ std::uint32_t held_at(const Competitor& own, std::uint64_t sure, std::uint64_t total) {
  const auto held = [&](std::uint64_t by_score) {
    return min(std::uint64_t{own.size}, max(sure, by_score));
  };
  // With the bound `high`, heads hold at most `total`; with a bound below `low`, more. At first,
  // `high` is the best rank, above which there is no entry, and `low` the worst: below it, heads
  // would hold all their entries, and `total` is less.
  std::uint64_t high = warp_largest(own.size > 0 ? own.rank(0) : 0);
  std::uint64_t low =
      0xffffffffu - warp_largest(own.size > 0 ? 0xffffffffu - own.rank(own.size - 1) : 0);
  std::uint32_t least = 0, most = own.size;  // above() of any bound from `low` to `high`
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const std::uint32_t above = own.above(static_cast<std::uint32_t>(middle), least, most);
    if (warp_sum(held(above)) <= total) {
      high = middle;
      least = above;
    } else {
      low = middle + 1;
      most = above;
    }
  }
  const auto bound = static_cast<std::uint32_t>(high);
  const std::uint32_t by_score = own.above(bound, least, most);
  const std::uint64_t above = held(by_score);
  const std::uint64_t equal =
      held(bound == 0 ? own.size : own.above(bound - 1, by_score, own.size)) - above;
  std::uint64_t before = equal;  // of the heads up to this one
  for (std::uint32_t step = 1; step < kWarp; step *= 2) {
    const std::uint64_t other = __shfl_up_sync(kWholeWarp, before, step);
    if (threadIdx.x % kWarp >= step) before += other;
  }
  before -= equal;
  const std::uint64_t left = total - min(total, warp_sum(above));
  return static_cast<std::uint32_t>(above + min(equal, left - min(left, before)));
}

// A warp walks kContestRounds rounds. grid (blocks).
__global__ void contest(AllocateDevice task) {
  const std::uint32_t lane = threadIdx.x % kWarp;
  const std::uint64_t warp = (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kWarp;
  const bool plays = lane < task.num_heads;
  const Competitor own{task.scores + std::uint64_t{lane} * task.num_tokens,
                       task.best + std::uint64_t{lane} * task.best_stride,
                       plays ? task.sizes[lane] : 0};
  const std::uint64_t guarded = std::uint64_t{task.protected_count} * task.num_heads;
  const std::uint64_t seats = task.slots - guarded;
  std::uint16_t* heads = task.heads + guarded;
  const std::uint64_t available = min(seats, warp_sum(own.size));

  std::uint64_t round = warp * kContestRounds, seat = round * task.num_heads;
  if (seat >= available) return;  // the whole warp
  const auto sure_at = [&](std::uint64_t average) {
    return task.guarantee.entries(task.protected_count, average);
  };
  std::uint32_t taken = round == 0 ? 0 : held_at(own, sure_at(round), seat);
  std::uint32_t next = taken < own.size ? own.rank(taken) : 0;
  const auto take = [&](std::uint64_t at) {
    if (at < seats) heads[at] = static_cast<std::uint16_t>(lane);
    ++taken;
    next = taken < own.size ? own.rank(taken) : 0;
  };
  for (std::uint64_t last = round + kContestRounds; round < last && seat < available;) {
    ++round;
    const bool short_of = taken < own.size && taken < sure_at(round);
    const std::uint32_t given = __ballot_sync(kWholeWarp, short_of);
    if (short_of) take(seat + __popc(given & ((1u << lane) - 1)));
    seat += __popc(given);
    for (; seat < round * task.num_heads; ++seat) {
      // Higher is better: rank + 1, then the lower head; 0 if a head has no entry left.
      const std::uint64_t bid =
          taken < own.size ? (std::uint64_t{next} + 1) << 32 | (0xffffffffu - lane) : 0;
      const std::uint64_t best = warp_largest(bid);
      if (best == 0) return;
      if (bid == best) take(seat);
    }
  }
}

// grid (blocks, heads).
__global__ void rank_best(RanksDevice task) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= task.sizes[blockIdx.y]) return;
  const std::uint32_t token = task.best[std::uint64_t{blockIdx.y} * task.best_stride + i];
  task.ranks[std::uint64_t{blockIdx.y} * task.count + i] =
      score_rank(task.scores[std::uint64_t{blockIdx.y} * task.num_tokens + token]);
}

}  // namespace

Status launch_ranks(const RanksDevice& task, Stream& stream) {
  const dim3 grid(ceil_div(task.count, kElementwiseThreads), task.num_heads);
  return launch("allocate: ranks", rank_best, grid, kElementwiseThreads, 0, stream, task);
}

Status launch_allocate(const AllocateDevice& task, Stream& stream) {
  const std::uint64_t guarded = std::uint64_t{task.protected_count} * task.num_heads;
  const std::uint64_t in_turns = task.uniform || task.slots < guarded ? task.slots : guarded;
  PRECIS_TRY(launch("allocate: turns", take_turns, ceil_div(in_turns, kElementwiseThreads),
                    kElementwiseThreads, 0, stream, task.num_heads, in_turns, task.heads));
  if (in_turns == task.slots) return {};
  if (task.num_heads > kContestHeadsMax) {
    return Status::unsupported("a contest of " + std::to_string(task.num_heads) +
                               " heads; on a device at most " + std::to_string(kContestHeadsMax) +
                               " compete");
  }
  const std::uint64_t rounds = ceil_div(task.slots - in_turns, task.num_heads);
  const std::uint32_t warps = ceil_div(rounds, kContestRounds);
  return launch("allocate: contest", contest, ceil_div(warps, kContestThreads / kWarp),
                kContestThreads, 0, stream, task);
}

}  // namespace precis::kernels
