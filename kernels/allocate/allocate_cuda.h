// The CUDA twin of allocate, for heads that take turns or compete within their layer (uniform,
// flat, ada with a guarantee): the turns of allocate_cpu, seat for seat. No CUDA header shows here.
#pragma once

#include <cstdint>

#include "kernels/allocate/allocate_op.h"
#include "kernels/common/device.h"

namespace precis::kernels {

// One layer. Device pointers.
struct AllocateDevice {
  bool uniform = false;  // heads take turns to the end; else they compete for what is ranked
  Guarantee guarantee;
  std::uint32_t num_heads = 0, num_tokens = 0;
  std::uint32_t protected_count = 0;  // the same in every head
  std::uint64_t slots = 0;            // wanted
  const float* scores = nullptr;      // [num_heads, num_tokens]
  // Ranked tokens of each head by (score desc, token asc): sizes[h] of them from
  // best[h * best_stride] on. Of topk these are a part of the order, so `best` may point into it.
  const std::uint32_t* best = nullptr;
  std::uint32_t best_stride = 0;
  const std::uint32_t* sizes = nullptr;  // [num_heads]
  // [slots], written: who takes each. Where the ranked end before, the rest stays as it was.
  std::uint16_t* heads = nullptr;
};

// score_rank() of each head's best ranked tokens, for turns that the host makes (layer_turns.h).
struct RanksDevice {
  std::uint32_t num_heads = 0, num_tokens = 0;
  const float* scores = nullptr;        // as above
  const std::uint32_t* best = nullptr;  // as above
  std::uint32_t best_stride = 0;
  const std::uint32_t* sizes = nullptr;  // as above
  std::uint32_t count = 0;               // the largest of them
  std::uint32_t* ranks = nullptr;        // [num_heads, count], written as far as sizes say
};

inline constexpr std::uint32_t kContestHeadsMax = 32;  // one lane each

// Enqueues on `stream`; neither allocates nor waits, and needs no workspace. kUnsupported where
// more than kContestHeadsMax heads compete.
Status launch_allocate(const AllocateDevice& task, Stream& stream);
Status launch_ranks(const RanksDevice& task, Stream& stream);

}  // namespace precis::kernels
