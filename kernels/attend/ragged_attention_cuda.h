// The CUDA implementation of attention over ragged heads (ragged_attention.h): a launcher. Includes
// no CUDA header.
#pragma once

#include "kernels/common/device.h"
#include "precis/ragged_attention.h"

namespace precis::kernels {

struct RaggedAttentionDevice {
  std::uint32_t num_kv_heads, group, head_dim;
  Dtype dtype;
  float scale;
  const float* queries;    // [num_kv_heads * group, head_dim], on the device
  const RaggedRows* rows;  // [num_rows], on the device; their K and V too, aligned to 16 bytes
  std::uint32_t num_rows;
  std::uint32_t largest;  // count of any of `rows`
  float* work;            // [ragged_work_floats()], on the device
  float* out;             // [num_kv_heads * group, head_dim], on the device
};

// The size of `work`, from the other fields.
std::size_t ragged_work_floats(const RaggedAttentionDevice& task);

// Enqueues on `stream`; neither allocates nor waits. Results agree with the CPU's within the
// rounding of their sums, and repeat bit for bit.
Status launch_ragged_attention(const RaggedAttentionDevice& task, Stream& stream);

}  // namespace precis::kernels
