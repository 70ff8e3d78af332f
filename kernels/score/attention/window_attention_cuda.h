// The CUDA implementation of attention_columns.h, the common mechanism of every attention scorer:
// launcher and workspace. Includes no CUDA header.
#pragma once

#include "kernels/common/device.h"
#include "kernels/score/attention/attention_op.h"
#include "kernels/score/layer_weight_op.h"

namespace precis::kernels {

// Device pointers, packed, aligned to 16 bytes. queries: [num_kv_heads * group, pushed, head_dim];
// keys: [num_kv_heads, num_tokens, head_dim]; both of `dtype`. lse: [num_q_heads, pushed] f32, or
// null to compute it; queries that stand behind the segment must have it. scores: output,
// [num_kv_heads, num_tokens] f32: +infinity past op.columns.
struct WindowAttentionDevice {
  AttentionOp op;
  std::uint32_t num_kv_heads, num_tokens, head_dim, pushed;
  Dtype dtype;
  const void *keys, *queries;
  const float* lse;
  float* scores;
  // Results to compute besides scores (AttentionWants).
  float* mean;   // output or null, as scores: the mean weight over rows and group, not pooled
  bool claims;   // whether to compute the layer's preference_weight(), with `powers`
  float* claim;  // output, [1], if `claims`
  PreferencePowers powers;
  bool row_mass;  // a pooled row is scaled to the mass it had
};

// The largest pooling kernel for rows that are pooled one by one: the pooled columns and their halo
// must fit into a tile of 64 tokens.
inline constexpr std::uint32_t kPooledRowsKernelMax = 33;
bool takes_window_attention(const AttentionOp& op);

// 4 B per KV head and token for columns; twice that (or one KV head's columns, if that is more) if
// they are pooled before the group is reduced; 4 B per observing row; and for softmaxes at most
// another 4 B per KV head and token, or, if pooled rows keep their mass, at least 16 B a row.
std::size_t window_attention_workspace_bytes(const WindowAttentionDevice& task);

// Enqueues on `stream`; neither allocates nor waits. Scores agree with the CPU's within the
// rounding of their sums (tests/unit/kernels/gpu_window_attention_test.cc states the bound) and
// repeat bit for bit. `task` must pass takes_window_attention().
Status launch_window_attention(const WindowAttentionDevice& task, void* workspace, Stream& stream);

}  // namespace precis::kernels
