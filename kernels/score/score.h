// Stage score: computes the importance of each token to each head, in f32 for every input dtype.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// Fills `out` (policies/scores.md has a section for each scorer):
//   streaming           the token's absolute position
//   window_attn         attention of the last queries
//   tova                the same, mean over all heads
//   h2o                 attention of the last queries on every token they see
//   observed_mean       attention of all queries on every token they see
//   kvzip               attention of queries after the segment
//   vatp                attention x the token's ||v||_1
//   lava                attention x the head's largest ||v||_1
//   cake                mean + gamma x variance of attention
//   defensive           worst case of attention x output norm
//   expected_attention  expected attention, from the statistics of future queries
//   knorm               -||k||
//   keydiff             -cos(k, mean of unit keys)
//   kvdiff              the same with keys before RoPE, x ||v|| relative to the head's mean
//   lagkv               spread of K and V within the channel ranges of the next partition
//   localkv             spread of K and V within the channel ranges of their own partition
//   random              random_score()
//   external            as pushed
// `input` has passed check. Results depend on the machine's instruction set in their last bits,
// never on the number of threads.
Status score_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                 LayerScores& out);

// One function for each family of scorers. `scores` and out.scores: [num_kv_heads, n]. The first
// also fills out.second for kThreshold and out.weight for kPreference.
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
