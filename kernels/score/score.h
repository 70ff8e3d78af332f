// Stage score: computes the importance of each token to each head, in f32 for every input dtype.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// Fills `out`. policies/scores.md has a section for each scorer, recipe.h a line.
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
void score_kvprobe_cpu(const CpuContext& context, const LayerInput& input, std::span<float> scores);
// lagkv and localkv.
void score_partitions_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                          std::span<float> scores);

}  // namespace precis::kernels
