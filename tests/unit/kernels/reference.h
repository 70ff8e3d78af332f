// The third implementation: each stage as its definition reads, slow, in double, for tests alone.
#pragma once

#include <vector>

#include "precis/kernels.h"

namespace precis::kernels::test {

// [num_q_heads, pushed], over the layer's keys that each query sees.
std::vector<float> reference_lse(const LayerInput& input);

// [num_kv_heads, n].
std::vector<double> reference_scores(const Recipe& recipe, const LayerInput& input);

RetentionOrders reference_orders(const Recipe& recipe, const LayerInput& input,
                                 const std::vector<float>& scores);

// The head of every slot of a layer, for the recipes that are orders.
std::vector<std::uint32_t> reference_slots(const Recipe& recipe, const RetentionOrders& orders,
                                           const std::vector<float>& scores,
                                           std::uint32_t num_tokens, std::uint64_t slots);

// -1, 0, 1 as `a` stands before, ties with or stands behind `b` (D1).
int compare_scores(float a, float b);

}  // namespace precis::kernels::test
