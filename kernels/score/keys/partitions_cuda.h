// The CUDA implementation of lagkv and localkv: launcher and workspace. Includes no CUDA header.
#pragma once

#include <cstdint>

#include "kernels/common/device.h"
#include "kernels/common/segment_shape.h"
#include "precis/types.h"

namespace precis::kernels {

// Device pointers, packed, aligned to 16 bytes.
struct PartitionsDevice {
  SegmentShape shape;
  std::uint32_t num_heads, head_dim;
  Dtype dtype;
  std::uint32_t ahead;  // tokens from a row to the rows that give its ranges: shape.lag (lagkv), 0
                        // (localkv)
  bool kvpress_ranks;   // Recipe::lag_kvpress_ranks
  const void *keys, *values;  // [num_heads, num_tokens, head_dim]
  float* scores;              // output, [num_heads, num_tokens]
};

// One f32 per token and head.
std::size_t partitions_workspace_bytes(const PartitionsDevice& task);

// Enqueues on `stream`; neither allocates nor waits. Scores agree with the CPU's within the
// rounding of their sums (tests/unit/kernels/gpu_key_scores_test.cc states the bound) and repeat
// bit for bit.
Status launch_partitions(const PartitionsDevice& task, void* workspace, Stream& stream);

}  // namespace precis::kernels
