// The CUDA implementation of expected attention (policies/scores.md, "Expected attention"; D11):
// launcher and workspace. Includes no CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/device.h"
#include "precis/types.h"

namespace precis::kernels {

// Device pointers, packed, aligned to 16 bytes.
struct ExpectedAttentionDevice {
  std::uint32_t num_kv_heads, group, num_tokens, head_dim;
  std::uint32_t sinks;  // protected: outside the softmax, their scores +infinity
  Dtype dtype;
  const void *keys, *values;  // [num_kv_heads, num_tokens, head_dim]
  const float* means;         // [num_kv_heads * group, head_dim], of future queries
  const float* covariances;   // [num_kv_heads * group, head_dim, head_dim]
  bool weighs_values;         // Recipe::ea_value_norm
  float epsilon;              // Recipe::ea_epsilon_ppm
  float* scores;              // output, [num_kv_heads, num_tokens]
};

// 8 B per KV head and token, or 4 B per token and query head of a KV head if that is more; and a
// little for softmaxes.
std::size_t expected_attention_workspace_bytes(const ExpectedAttentionDevice& task);

// Enqueues on `stream`; neither allocates nor waits. Scores agree with the CPU's within the
// rounding of their sums (tests/unit/kernels/gpu_score_test.cc states the bound) and repeat bit for
// bit.
Status launch_expected_attention(const ExpectedAttentionDevice& task, void* workspace,
                                 Stream& stream);

}  // namespace precis::kernels
