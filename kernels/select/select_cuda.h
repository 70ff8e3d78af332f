// The CUDA implementation of select: the same orders as select_cpu, token for token. Includes no
// CUDA header.
#pragma once

#include <cstdint>

#include "kernels/common/device.h"
#include "kernels/common/segment_shape.h"
#include "kernels/select/first_stage_op.h"

namespace precis::kernels {

struct SelectDevice {
  Selector selector = Selector::kTopk;
  SegmentShape shape;
  std::uint32_t num_heads = 0;
  std::uint32_t chunk = 1;     // kChunk
  FirstStage first_stage;      // kTwoStage
  std::uint64_t mass_ppm = 0;  // kThreshold
  // Device pointers.
  const float* scores = nullptr;          // [num_heads, num_tokens]
  const float* second = nullptr;          // the same, for kTwoStage and kThreshold
  const std::uint32_t* limits = nullptr;  // [num_heads], ranked tokens wanted of each; null: all
  std::uint32_t* order = nullptr;         // output, [num_heads, num_tokens]: protected first, then
                                          // `limits` ranked

  // Everything except the pointers.
  static SelectDevice of(const Recipe& recipe, const LayerInput& input);
};

// At most 8 B per score, and 256 B.
std::size_t select_workspace_bytes(const SelectDevice& task);

// Enqueues on `stream`; neither allocates nor waits. The content of `order` past the protected and
// the `limits` ranked tokens of a head is undefined.
Status launch_select(const SelectDevice& task, void* workspace, Stream& stream);

}  // namespace precis::kernels
