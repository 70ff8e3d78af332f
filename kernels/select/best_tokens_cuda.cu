// The best tokens by merging, exact and deterministic. Many blocks work on each head:
//   sort_tiles    a block sorts one tile of tokens by (score desc, token asc)
//   merge_tiles   the place of a token in its head is the number of tokens that come before it in
//                 each tile; a block finds the places of one tile's tokens by search
// The place of each output depends only on counts, not on the order in which warps run.
#include <algorithm>

#include "kernels/select/best_tokens_cuda.h"
#include "kernels/select/rank_search.cuh"

namespace precis::kernels {
namespace {

constexpr std::uint32_t kWarps = kSelectThreads / kWarp;
static_assert(kSelectTile % kSelectThreads == 0 && kSelectTile <= 1u << 16);

struct TilesTask {
  BestTokensDevice d;
  std::uint32_t* sorted;  // [num_heads, last - first], the tokens of each tile in its order
};

// One head's part of the task.
struct Head {
  const float* scores;
  std::uint32_t* sorted;
  std::uint32_t total, limit, tiles;
  // A token after the limit-th of its tile cannot be among the best.
  __device__ std::uint32_t tile_size(std::uint32_t tile) const {
    return min(limit, min(kSelectTile, total - tile * kSelectTile));
  }
};
__device__ Head head_of(const TilesTask& task, std::uint32_t head) {
  const std::uint32_t total = task.d.last - task.d.first;
  return {task.d.scores + std::uint64_t{head} * task.d.stride,
          task.sorted + std::uint64_t{head} * total, total,
          task.d.limits == nullptr ? total : task.d.limits[head],
          (total + kSelectTile - 1) / kSelectTile};
}

// ---- sort ---------------------------------------------------------------------------------------

struct Keys {
  std::uint32_t ranks[kSelectTile];
  std::uint16_t tokens[kSelectTile];  // counted from the tile's first
};
struct SortShared : RankSearch {
  std::uint32_t bins[kWarps][kBins];  // counts, then the next place of each digit
  Keys keys[2];
};

__device__ std::uint32_t lanes_before() { return (1u << threadIdx.x % kWarp) - 1; }

// Turns the counts of every warp and digit into places: digits ascending, then warps in order.
__device__ void places_of_counts(SortShared& s) {
  if (threadIdx.x < kBins) {
    std::uint32_t sum = 0;
#pragma unroll
    for (std::uint32_t w = 0; w < kWarps; ++w) {
      const std::uint32_t count = s.bins[w][threadIdx.x];
      s.bins[w][threadIdx.x] = sum;
      sum += count;
    }
    s.totals[threadIdx.x] = sum;
  }
  sum_totals(s);
  if (threadIdx.x < kBins) {
#pragma unroll
    for (std::uint32_t w = 0; w < kWarps; ++w) s.bins[w][threadIdx.x] += s.totals[threadIdx.x];
  }
  __syncthreads();
}

// Sorts `count` keys by one digit of their ranks, keeping the order of equals. Each warp takes a
// consecutive run of the keys.
__device__ void sort_by_digit(const Keys& from, std::uint32_t count, std::uint32_t digit,
                              SortShared& s, Keys& to) {
  const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const std::uint32_t steps = (count + kSelectThreads - 1) / kSelectThreads;
  const std::uint32_t first = min(count, warp * steps * kWarp);
  const std::uint32_t last = min(count, first + steps * kWarp);
  std::uint32_t* bins = s.bins[warp];
  for (std::uint32_t i = lane; i < kBins; i += kWarp) bins[i] = 0;
  __syncwarp();
  for (std::uint32_t i = first + lane; i < last; i += kWarp) {
    atomicAdd(&bins[digit_of(from.ranks[i], digit)], 1u);
  }
  __syncthreads();
  places_of_counts(s);
  for (std::uint32_t i = first; i < last; i += kWarp) {
    const bool inside = i + lane < last;
    const std::uint32_t rank = inside ? from.ranks[i + lane] : 0;
    const std::uint16_t token = inside ? from.tokens[i + lane] : std::uint16_t{0};
    const std::uint32_t bin = inside ? digit_of(rank, digit) : kBins;
    const std::uint32_t alike = __match_any_sync(kWholeWarp, bin);
    const std::uint32_t before = __popc(alike & lanes_before());
    const std::uint32_t place = inside ? bins[bin] : 0;
    __syncwarp();  // every lane reads its place before any lane updates it
    if (inside) {
      to.ranks[place + before] = rank;
      to.tokens[place + before] = token;
      if (before == 0) bins[bin] = place + __popc(alike);
    }
    __syncwarp();
  }
  __syncthreads();
}

// grid (tiles, heads).
__global__ void __launch_bounds__(kSelectThreads) sort_tiles(TilesTask task) {
  auto& s = *shared_memory<SortShared>();
  const Head head = head_of(task, blockIdx.y);
  if (head.limit == 0) return;
  const std::uint32_t first = blockIdx.x * kSelectTile;
  const std::uint32_t count = min(kSelectTile, head.total - first);
  for (std::uint32_t i = threadIdx.x; i < count; i += kSelectThreads) {
    s.keys[0].ranks[i] = rank_of(head.scores, task.d.first + first + i);
    s.keys[0].tokens[i] = static_cast<std::uint16_t>(i);
  }
  __syncthreads();
  for (std::uint32_t digit = 0; digit < kDigits; ++digit) {
    sort_by_digit(s.keys[digit % 2], count, digit, s, s.keys[1 - digit % 2]);
  }
  static_assert(kDigits % 2 == 0);  // so the last pass writes to keys[0]
  for (std::uint32_t i = threadIdx.x; i < head.tile_size(blockIdx.x); i += kSelectThreads) {
    head.sorted[first + i] = task.d.first + first + s.keys[0].tokens[i];
  }
}

// ---- merge --------------------------------------------------------------------------------------

constexpr std::uint32_t kTilesAtOnce = 4;  // in shared memory
constexpr std::uint32_t kOwn = kSelectTile / kSelectThreads;

struct MergeShared {
  std::uint32_t ranks[kTilesAtOnce][kSelectTile];
};

// How many of `size` ascending ranks come before `rank`: the lower ones, and if `with_equals` the
// equal ones.
__device__ std::uint32_t count_before(const std::uint32_t* ranks, std::uint32_t size,
                                      std::uint32_t rank, bool with_equals) {
  std::uint32_t low = 0, high = size;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    const std::uint32_t other = ranks[middle];
    if (other < rank || (with_equals && other == rank)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// grid (tiles, heads).
__global__ void __launch_bounds__(kSelectThreads) merge_tiles(TilesTask task) {
  auto& s = *shared_memory<MergeShared>();
  const Head head = head_of(task, blockIdx.y);
  const std::uint32_t own = blockIdx.x, own_size = head.tile_size(own);
  std::uint32_t tokens[kOwn], ranks[kOwn], places[kOwn];  // a place at the limit: not wanted
#pragma unroll
  for (std::uint32_t k = 0; k < kOwn; ++k) {
    const std::uint32_t i = threadIdx.x + k * kSelectThreads;
    places[k] = i < own_size ? i : head.limit;
    tokens[k] = i < own_size ? head.sorted[own * kSelectTile + i] : 0;
    ranks[k] = i < own_size ? rank_of(head.scores, tokens[k]) : 0;
  }
  for (std::uint32_t first = 0; first < head.tiles; first += kTilesAtOnce) {
    const std::uint32_t last = min(head.tiles, first + kTilesAtOnce);
#pragma unroll
    for (std::uint32_t k = 0; k < kTilesAtOnce * kOwn; ++k) {
      const std::uint32_t tile = first + k / kOwn;
      const std::uint32_t i = threadIdx.x + k % kOwn * kSelectThreads;
      if (tile >= last || tile == own || i >= head.tile_size(tile)) continue;
      s.ranks[k / kOwn][i] = rank_of(head.scores, head.sorted[tile * kSelectTile + i]);
    }
    __syncthreads();
    for (std::uint32_t tile = first; tile < last; ++tile) {
      if (tile == own) continue;
#pragma unroll
      for (std::uint32_t k = 0; k < kOwn; ++k) {
        if (places[k] >= head.limit) continue;
        // Equal tokens of earlier tiles come before, those of later tiles after.
        places[k] +=
            count_before(s.ranks[tile - first], head.tile_size(tile), ranks[k], tile < own);
      }
    }
    __syncthreads();
  }
  std::uint32_t* order =
      task.d.order + std::uint64_t{blockIdx.y} * task.d.order_stride + task.d.order_first;
#pragma unroll
  for (std::uint32_t k = 0; k < kOwn; ++k) {
    if (places[k] < head.limit) order[places[k]] = tokens[k];
  }
}

}  // namespace

std::size_t best_tokens_workspace_bytes(const BestTokensDevice& task) {
  return std::size_t{task.num_heads} * (task.last - task.first) * sizeof(std::uint32_t);
}

Status launch_best_tokens(const BestTokensDevice& task, void* workspace, Stream& stream) {
  const TilesTask tiles{task, static_cast<std::uint32_t*>(workspace)};
  const dim3 grid(ceil_div(task.last - task.first, kSelectTile), task.num_heads);
  PRECIS_TRY(launch("select: sorted tiles", sort_tiles, grid, kSelectThreads, sizeof(SortShared),
                    stream, tiles));
  return launch("select: best tokens", merge_tiles, grid, kSelectThreads, sizeof(MergeShared),
                stream, tiles);
}

}  // namespace precis::kernels
