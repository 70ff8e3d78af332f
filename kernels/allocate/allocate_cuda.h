// The CUDA implementation of allocate, for heads that take turns or compete within their layer
// (uniform, flat, ada with a guarantee). The turns equal those of allocate_cpu(). Includes no CUDA
// header.
#pragma once

#include <cstdint>

#include "kernels/allocate/allocate_op.h"
#include "kernels/common/device.h"

namespace precis::kernels {

// One layer. Device pointers.
struct AllocateDevice {
  bool uniform = false;  // heads take turns to the end; else they compete for the ranked seats
  Guarantee guarantee;
  std::uint32_t num_heads = 0, num_tokens = 0;
  std::uint32_t protected_count = 0;  // the same in every head
  std::uint64_t slots = 0;            // how many turns are wanted
  const float* scores = nullptr;      // [num_heads, num_tokens]
  // Ranked tokens of each head by (score desc, token asc): sizes[h] of them from best[h *
  // best_stride] on. For topk these lists are part of the retention order, so `best` may point into
  // it.
  const std::uint32_t* best = nullptr;
  std::uint32_t best_stride = 0;
  const std::uint32_t* sizes = nullptr;  // [num_heads]
  // Output, [slots]: the head that takes each slot. If the ranked entries run out, the remaining
  // elements are not written.
  std::uint16_t* heads = nullptr;
};

// score_rank() of each head's best ranked tokens, for turns that the host computes (layer_turns.h).
struct RanksDevice {
  std::uint32_t num_heads = 0, num_tokens = 0;
  const float* scores = nullptr;        // as above
  const std::uint32_t* best = nullptr;  // as above
  std::uint32_t best_stride = 0;
  const std::uint32_t* sizes = nullptr;  // as above
  std::uint32_t count = 0;               // the largest of `sizes`
  std::uint32_t* ranks = nullptr;        // output, [num_heads, count]; sizes[h] of each row are
                                         // written
};

inline constexpr std::uint32_t kContestHeadsMax = 32;  // one lane each

// Both enqueue on `stream`; they neither allocate nor wait, and need no workspace. kUnsupported if
// more than kContestHeadsMax heads compete.
Status launch_allocate(const AllocateDevice& task, Stream& stream);
Status launch_ranks(const RanksDevice& task, Stream& stream);

}  // namespace precis::kernels
