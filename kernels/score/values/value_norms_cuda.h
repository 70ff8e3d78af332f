// The CUDA implementations of the value norms kL1Exact and kL2Gram (value_norms.h), and of the
// forms in expected attention: launchers. Includes no CUDA header.
#pragma once

#include <cstdint>

#include "kernels/common/device.h"
#include "precis/types.h"

namespace precis::kernels {

// Device pointers, packed, aligned to 16 bytes.
struct ValueNormsDevice {
  std::uint32_t num_kv_heads, group, num_tokens, head_dim;
  Dtype dtype;          // of values
  const void* values;   // [num_kv_heads, num_tokens, head_dim]
  std::uint32_t width;  // of W_O
  Dtype weights_dtype;  // of W_O
  const void* weights;  // [num_kv_heads * group, head_dim, width], W_O
  const float* gram;    // [num_kv_heads * group, head_dim, head_dim], W W^T
  float* norms;         // output, [num_kv_heads, num_tokens]
};

// launch_l1_exact() reads the weights, launch_l2_gram() the Gram matrices. Both enqueue on
// `stream`; they neither allocate nor wait, and need no workspace. They use tensor cores if all
// inputs are bf16 and heads have at most 256 channels (the Gram matrix as three bf16 that hold its
// f32), and f32 otherwise. Norms agree with the CPU's within the rounding of their sums
// (tests/unit/kernels/gpu_value_norms_test.cc states the bound).
Status launch_l1_exact(const ValueNormsDevice& task, Stream& stream);
Status launch_l2_gram(const ValueNormsDevice& task, Stream& stream);

// Device pointers, packed, aligned to 16 bytes.
struct RowFormsDevice {
  std::uint32_t num_heads, group, num_tokens, head_dim;
  Dtype dtype;            // of rows
  const void* rows;       // [num_heads, num_tokens, head_dim], x
  const float* matrices;  // [num_heads * group, head_dim, head_dim], M
  const float* vectors;   // [num_heads * group, head_dim], u
  float vector_scale, scale;
  float* forms;  // output, [num_heads * group, num_tokens]: scale (x^T M x + vector_scale u.x)
};

// As launch_l2_gram().
Status launch_row_forms(const RowFormsDevice& task, Stream& stream);

}  // namespace precis::kernels
