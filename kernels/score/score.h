// Stage score: how much a head will miss each token. f32 inside, whatever the inputs' dtype.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// Fills `out` (policies.md, one section per scorer):
//   streaming           the token's absolute position
//   window_attn         attention of the last queries
//   tova                the same, mean over all heads
//   h2o, observed_mean  attention of the last, of all queries, on every token they see
//   kvzip               attention of queries behind the segment
//   vatp, lava          attention x the token's, the head's largest ||v||_1
//   cake                mean + gamma x variance of attention
//   defensive           worst case of attention x output norm
//   expected_attention  attention expected by the statistics of queries to come
//   knorm               -||k||
//   keydiff             -cos(k, mean of unit keys)
//   kvdiff              the same with keys before RoPE, x ||v|| relative to the head's mean
//   lagkv, localkv      spread in the next, in its own partition's range, K and V
//   random              random_score()
//   external            as pushed
// `input` has passed check. Results depend on the machine's instruction set in their last bits,
// never on the number of threads.
Status score_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                 LayerScores& out);

// One family each. `scores` and out.scores: [num_kv_heads, n].
// Fills out.second for kThreshold and out.weight for kPreference too.
void score_attention_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                         LayerScores& out);
void score_expected_attention_cpu(const CpuContext& context, const Recipe& recipe,
                                  const LayerInput& input, std::span<float> scores);
void score_knorm_cpu(const CpuContext& context, const LayerInput& input, std::span<float> scores);
void score_keydiff_cpu(const CpuContext& context, const LayerInput& input, std::span<float> scores);
void score_kvdiff_cpu(const CpuContext& context, const LayerInput& input, std::span<float> scores);
// lagkv and localkv.
void score_partitions_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                          std::span<float> scores);

}  // namespace precis::kernels
