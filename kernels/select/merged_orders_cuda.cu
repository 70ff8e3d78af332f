// Each merge takes its tokens one by one, because each choice depends on those before it: one
// thread walks while the others fetch its input. No flag says whether a token has been taken: the
// tokens taken from an order are always its beginning, so a comparison with the last taken token is
// enough.
// A walk along two stages is cut into parts, one for each block of threads. How many of the tokens
// before a part the first stage chose follows from their number; all others are the beginning of
// the other order without the chosen tokens. So a block finds where its part begins by counting.
#include "kernels/select/merged_orders_cuda.h"

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"
#include "kernels/select/best_tokens_cuda.h"
#include "kernels/select/select_op.h"

namespace precis::kernels {
namespace {

struct MergeTask {
  const float *scores, *second;
  const std::uint32_t* limits;
  const std::uint32_t *by_score, *by_second;  // [heads, ranked]
  std::uint32_t* order;
  std::uint32_t num_tokens, begin, ranked, guarded;
  FirstStage first_stage;
  double share;  // kThreshold
};

// One head's part of the task.
struct Head {
  const float *scores, *second;
  const std::uint32_t *by_score, *by_second;
  std::uint32_t* out;
  std::uint32_t limit;
};
__device__ Head head_of(const MergeTask& task, std::uint32_t head) {
  const std::uint64_t tokens = std::uint64_t{head} * task.num_tokens;
  const std::uint64_t ranked = std::uint64_t{head} * task.ranked;
  return {task.scores + tokens,
          task.second + tokens,
          task.by_score + ranked,
          task.by_second + ranked,
          task.order + tokens + task.guarded,
          task.limits == nullptr ? task.ranked : task.limits[head]};
}

// A token and its place in both orders.
struct Place {
  std::uint64_t score_key, second_key;
  std::uint32_t token;
};
__device__ Place place_of(const Head& head, std::uint32_t token) {
  return {retention_key(head.scores[token], token), retention_key(head.second[token], token),
          token};
}

struct TwoStageShared {
  Place by_score[kMergeThreads], by_second[kMergeThreads];  // the next of each order
  std::uint32_t chosen, next, ranked;                       // the progress of the walk
  std::uint32_t counts[kMergeThreads / kWarp];              // of each warp's run
};

// One past the key of the token before place `next` of an order; no key is below 0.
__device__ std::uint64_t last_key(const float* scores, const std::uint32_t* order,
                                  std::uint32_t next) {
  return next == 0 ? 0 : retention_key(scores[order[next - 1]], order[next - 1]) + 1;
}

// Counts by_second's tokens whose key by score is at least `last_chosen`, and sets s.next to one
// past the place of the `wanted`-th; it is among the first `end`. Every thread must call it.
__device__ void find_next(const Head& head, std::uint64_t last_chosen, std::uint32_t wanted,
                          std::uint32_t end, TwoStageShared& s) {
  constexpr std::uint32_t kWarps = kMergeThreads / kWarp;
  const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (wanted == 0) {
    if (threadIdx.x == 0) s.next = 0;
    return;
  }
  const auto left_over = [&](std::uint32_t i, std::uint32_t last) {
    if (i >= last) return false;
    const std::uint32_t token = head.by_second[i];
    return retention_key(head.scores[token], token) >= last_chosen;
  };
  std::uint32_t first = 0;
  while (end - first > kWarp) {  // keeps the warp's run that reaches `wanted`
    const std::uint32_t run = (end - first + kMergeThreads - 1) / kMergeThreads * kWarp;
    const std::uint32_t own_first = min(end, first + warp * run),
                        own_end = min(end, own_first + run);
    std::uint32_t count = 0;
#pragma unroll 4
    for (std::uint32_t i = own_first; i < own_end; i += kWarp) {
      count += __popc(__ballot_sync(kWholeWarp, left_over(i + lane, own_end)));
    }
    if (lane == 0) s.counts[warp] = count;
    __syncthreads();
    std::uint32_t w = 0;
    for (; w + 1 < kWarps && s.counts[w] < wanted; ++w) wanted -= s.counts[w];
    first = min(end, first + w * run);
    end = min(end, first + run);
    __syncthreads();
  }
  const std::uint32_t found = __ballot_sync(kWholeWarp, left_over(first + lane, end));
  const auto up_to = static_cast<std::uint32_t>(__popc(found << (kWarp - 1 - lane)));
  if (warp == 0 && (found >> lane & 1) != 0 && up_to == wanted) {
    s.next = first + lane + 1;
  }
}

// Walks in one thread until it reaches the end of the fetched places or of the part.
__device__ void walk_two_stage(const Head& head, const FirstStage& first_stage, std::uint32_t last,
                               TwoStageShared& s, std::uint64_t& last_chosen,
                               std::uint64_t& last_passed) {
  const std::uint32_t chosen0 = s.chosen, next0 = s.next;
  std::uint32_t chosen = chosen0, next = next0, ranked = s.ranked;
  while (ranked < last && chosen - chosen0 < kMergeThreads && next - next0 < kMergeThreads) {
    const Place& second = s.by_second[next - next0];
    const bool by_score = first_stage(ranked + 1) > chosen;
    const Place& first = s.by_score[chosen - chosen0];
    // If stage 2 has taken this token already, this turn takes stage 2's next token instead.
    const bool found = by_score && first.second_key >= last_passed;
    const std::uint64_t now_chosen = by_score ? first.score_key + 1 : last_chosen;
    if (!found && second.score_key < now_chosen) {  // taken by its score
      last_passed = second.second_key + 1;
      ++next;
      continue;
    }
    last_chosen = now_chosen;
    chosen += static_cast<std::uint32_t>(by_score);
    head.out[ranked++] = found ? first.token : second.token;
    if (!found) {
      last_passed = second.second_key + 1;
      ++next;
    }
  }
  s.chosen = chosen;
  s.next = next;
  s.ranked = ranked;
}

// grid (parts, heads).
__global__ void __launch_bounds__(kMergeThreads) merge_two_stage(MergeTask task) {
  auto& s = *shared_memory<TwoStageShared>();
  const Head head = head_of(task, blockIdx.y);
  const std::uint32_t first = blockIdx.x * kMergePart;
  if (first >= head.limit) return;
  const std::uint32_t last = min(head.limit, first + kMergePart);
  const auto chosen = static_cast<std::uint32_t>(task.first_stage(first));
  std::uint64_t last_chosen = last_key(head.scores, head.by_score, chosen);
  find_next(head, last_chosen, first - chosen, first, s);
  if (threadIdx.x == 0) {
    s.chosen = chosen;
    s.ranked = first;
  }
  __syncthreads();
  std::uint64_t last_passed = last_key(head.second, head.by_second, s.next);
  while (s.ranked < last) {
    const std::uint32_t of_score = s.chosen + threadIdx.x, of_second = s.next + threadIdx.x;
    if (of_score < head.limit) {
      s.by_score[threadIdx.x] = place_of(head, head.by_score[of_score]);
    }
    if (of_second < head.limit) {
      s.by_second[threadIdx.x] = place_of(head, head.by_second[of_second]);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      walk_two_stage(head, task.first_stage, last, s, last_chosen, last_passed);
    }
    __syncthreads();
  }
}

struct ThresholdShared {
  float masses[kMergeThreads];
  std::uint32_t kept[kMergeThreads / kWarp];  // of each warp's run
  std::uint32_t taken;
  double sum;
};

__device__ float mass_of(float x) { return x > 0 && x <= 3.40282347e38f ? x : 0.0f; }

// Adds mass(0), mass(1) .. mass(count - 1) in order until `target` is reached. Sets s.taken to how
// many were added, s.sum to their sum. Every thread must call it.
template <typename Mass>
__device__ void sum_in_order(std::uint32_t count, double target, ThresholdShared& s,
                             const Mass& mass) {
  if (threadIdx.x == 0) {
    s.taken = 0;
    s.sum = 0;
  }
  __syncthreads();
  for (std::uint32_t first = 0; first == s.taken && first < count; first += kMergeThreads) {
    const std::uint32_t size = min(kMergeThreads, count - first);
    if (threadIdx.x < size) s.masses[threadIdx.x] = mass(first + threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) {
      double sum = s.sum;
      std::uint32_t i = 0;
      for (; i < size && sum < target; ++i) sum += s.masses[i];
      s.sum = sum;
      s.taken = first + i;
    }
    __syncthreads();
  }
}

// Appends the tokens of by_score whose key in the other order is at least `last`, up to the head's
// limit.
__device__ void append_rest(const Head& head, std::uint64_t last, ThresholdShared& s) {
  const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const std::uint32_t steps = (head.limit + kMergeThreads - 1) / kMergeThreads;
  const std::uint32_t first = min(head.limit, warp * steps * kWarp);
  const std::uint32_t end = min(head.limit, first + steps * kWarp);
  const auto ballot = [&](std::uint32_t i, std::uint32_t& token) {
    token = i + lane < end ? head.by_score[i + lane] : 0;
    return __ballot_sync(kWholeWarp,
                         i + lane < end && retention_key(head.second[token], token) >= last);
  };
  std::uint32_t token = 0, kept = 0;
  for (std::uint32_t i = first; i < end; i += kWarp) kept += __popc(ballot(i, token));
  if (lane == 0) s.kept[warp] = kept;
  __syncthreads();
  std::uint32_t place = s.taken;
  for (std::uint32_t w = 0; w < warp; ++w) place += s.kept[w];
  for (std::uint32_t i = first; i < end; i += kWarp) {
    const std::uint32_t alike = ballot(i, token);
    const std::uint32_t mine = place + __popc(alike & ((1u << lane) - 1));
    if ((alike >> lane & 1) != 0 && mine < head.limit) head.out[mine] = token;
    place += __popc(alike);
  }
}

// grid (heads).
__global__ void __launch_bounds__(kMergeThreads) merge_threshold(MergeTask task) {
  auto& s = *shared_memory<ThresholdShared>();
  const Head head = head_of(task, blockIdx.x);
  if (head.limit == 0) return;
  sum_in_order(task.ranked, __builtin_huge_val(), s,
               [&](std::uint32_t i) { return mass_of(head.second[task.begin + i]); });
  const double target = s.sum * task.share;
  __syncthreads();
  sum_in_order(head.limit, target, s,
               [&](std::uint32_t i) { return mass_of(head.second[head.by_second[i]]); });
  for (std::uint32_t i = threadIdx.x; i < s.taken; i += kMergeThreads) {
    head.out[i] = head.by_second[i];
  }
  std::uint64_t last = 0;  // one past the key of the last token taken
  if (s.taken > 0) {
    const std::uint32_t token = head.by_second[s.taken - 1];
    last = retention_key(head.second[token], token) + 1;
  }
  append_rest(head, last, s);
}

}  // namespace

Status launch_merged_orders(const SelectDevice& task, void* workspace, Stream& stream) {
  const std::uint32_t n = task.shape.num_tokens, begin = task.shape.sinks;
  const std::uint32_t end = n - task.shape.recent, ranked = end - begin;
  auto* by_score = static_cast<std::uint32_t*>(workspace);
  auto* by_second = by_score + std::size_t{task.num_heads} * ranked;
  PRECIS_TRY(launch_best_tokens(
      {task.scores, task.num_heads, n, begin, end, task.limits, by_score, 0, ranked}, task.order,
      stream));
  PRECIS_TRY(launch_best_tokens(
      {task.second, task.num_heads, n, begin, end, task.limits, by_second, 0, ranked}, task.order,
      stream));
  MergeTask merge{task.scores,
                  task.second,
                  task.limits,
                  by_score,
                  by_second,
                  task.order,
                  n,
                  begin,
                  ranked,
                  task.shape.protected_count(),
                  task.first_stage,
                  static_cast<double>(task.mass_ppm) / static_cast<double>(kPpm)};
  if (task.selector == Selector::kTwoStage) {
    return launch("select: two stages", merge_two_stage,
                  dim3(ceil_div(ranked, kMergePart), task.num_heads), kMergeThreads,
                  sizeof(TwoStageShared), stream, merge);
  }
  return launch("select: threshold", merge_threshold, task.num_heads, kMergeThreads,
                sizeof(ThresholdShared), stream, merge);
}

}  // namespace precis::kernels
