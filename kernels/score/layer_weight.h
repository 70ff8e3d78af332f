// A layer's weight in the segment's budget under LayerAllocator kEntropy and kPreference.
#pragma once

#include "kernels/common/segment_shape.h"
#include "kernels/score/attention/attention_columns.h"

namespace precis::kernels {

// LAVa's weight (policies/scores.md, "Weights of layers"): the entropy of the scores of the ranked
// tokens of all heads, normalised to shares, divided by num_kv_heads * n. Scores that cannot be
// shares (negative, NaN, infinite) count as 0; the weight is 0 if all scores do. In double, heads
// and then tokens ascending.
float entropy_weight(const SegmentShape& shape, std::span<const float> scores);

// CAKE's weight, in the same section: H^(1/tau1) * V^(1/tau2).
float preference_weight(const Recipe& recipe, const AttentionColumns& attention);

}  // namespace precis::kernels
