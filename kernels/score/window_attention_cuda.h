// The CUDA twin of the window-attention score: launcher and workspace. No CUDA header shows here.
#pragma once

#include "kernels/common/device.h"
#include "kernels/score/attention_op.h"

namespace precis::kernels {

// Device pointers, packed. queries: [num_kv_heads * group, pushed, head_dim]; keys: [num_kv_heads,
// num_tokens, head_dim]; both of `dtype`. lse: [num_q_heads, pushed] f32, or null to compute it.
// scores: [num_kv_heads, num_tokens] f32, written.
struct WindowAttentionDevice {
  AttentionOp op;
  std::uint32_t num_kv_heads, num_tokens, head_dim, pushed;
  Dtype dtype;
  const void *keys, *queries;
  const float* lse;
  float* scores;
};

std::size_t window_attention_workspace_bytes(const WindowAttentionDevice& task);

// Enqueues on `stream`; neither allocates nor waits. Scores agree with the CPU's within the
// rounding of their sums (tests/unit/kernels/gpu_window_attention_test.cc states the bound).
Status launch_window_attention(const WindowAttentionDevice& task, void* workspace, Stream& stream);

}  // namespace precis::kernels
