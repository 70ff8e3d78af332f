// The CUDA implementation of ranked_limits_op.h: how far select ranks each head, with the same
// limits as select_cpu(), for SelectDevice::limits. Includes no CUDA header.
#pragma once

#include <cstdint>

#include "kernels/common/device.h"
#include "kernels/select/ranked_limits_op.h"

namespace precis::kernels {

struct RankedLimitsDevice {
  RankedLimits of_layer;
  std::uint32_t num_heads = 0, num_tokens = 0;
  std::uint32_t first = 0, last = 0;  // tokens [first, last) of every head are ranked
  // Device pointers.
  const float* scores = nullptr;    // [num_heads, num_tokens]; read only if heads compete
  std::uint32_t* limits = nullptr;  // output, [num_heads]

  // Everything except the pointers. slots: of the layer, at most num_heads * shape.num_tokens.
  static RankedLimitsDevice of(const Recipe& recipe, const SegmentShape& shape,
                               std::uint32_t num_heads, std::uint64_t slots);
};

// If heads compete, 4 B for each of at most kLayerSampleSize sampled tokens (at least one of each
// head), and a few counts.
std::size_t ranked_limits_workspace_bytes(const RankedLimitsDevice& task);

// Enqueues on `stream`; neither allocates nor waits.
Status launch_ranked_limits(const RankedLimitsDevice& task, void* workspace, Stream& stream);

}  // namespace precis::kernels
