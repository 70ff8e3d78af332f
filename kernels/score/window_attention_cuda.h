// The CUDA twin of attention_columns.h, the mechanism under every attention scorer: launcher and
// workspace. No CUDA header shows here.
#pragma once

#include "kernels/common/device.h"
#include "kernels/score/attention_op.h"
#include "kernels/score/layer_weight_op.h"

namespace precis::kernels {

// Device pointers, packed, at multiples of 16 bytes. queries: [num_kv_heads * group, pushed,
// head_dim]; keys: [num_kv_heads, num_tokens, head_dim]; both of `dtype`. lse: [num_q_heads,
// pushed] f32, or null to compute it; queries that stand behind the segment bring theirs.
// scores: [num_kv_heads, num_tokens] f32, written: +infinity past op.columns.
struct WindowAttentionDevice {
  AttentionOp op;
  std::uint32_t num_kv_heads, num_tokens, head_dim, pushed;
  Dtype dtype;
  const void *keys, *queries;
  const float* lse;
  float* scores;
  // What is wanted besides (AttentionWants).
  float* mean;   // null, or as scores: the mean weight over rows and group, not pooled
  bool claims;   // preference_weight() of the layer, by `powers`
  float* claim;  // [1], where it is written
  PreferencePowers powers;
  bool row_mass;  // a pooled row is scaled to the mass it had
};

// Rows that are pooled one by one, are so over at most so many tokens: the pooled part of a tile of
// 64 and what lies around it stay together.
inline constexpr std::uint32_t kPooledRowsKernelMax = 33;
bool takes_window_attention(const AttentionOp& op);

// 4 B per KV head and token for columns, twice that (or one KV head's, where that is more) where
// they are pooled before the group is reduced; 4 B per observing row; and for softmaxes at most 4 B
// per KV head and token again. Where pooled rows keep their mass, the last are 16 B a row at least.
std::size_t window_attention_workspace_bytes(const WindowAttentionDevice& task);

// Enqueues on `stream`; neither allocates nor waits. Scores agree with the CPU's within the
// rounding of their sums (tests/unit/kernels/gpu_window_attention_test.cc states the bound) and
// repeat bit for bit. `task` passes takes_window_attention().
Status launch_window_attention(const WindowAttentionDevice& task, void* workspace, Stream& stream);

}  // namespace precis::kernels
