// The third implementation: each stage as its definition reads, slow, in double, for tests alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "precis/kernels.h"

namespace precis::kernels::test {

// [num_q_heads, pushed], over the layer's keys that each query sees: all where they stand `behind`.
std::vector<float> reference_lse(const LayerInput& input, bool behind = false);
// [num_q_heads, head_dim, head_dim] of W_O.
std::vector<float> reference_gram(const LayerInput& input);
// [num_kv_heads, n].
std::vector<double> reference_norms(ValueNorm norm, const LayerInput& input);
// How far f32 may lie from reference_norms() for its sums' rounding, beside a share of the norm.
// kL2Gram alone: a form that nearly vanishes is the difference of large products, of which 2^-20 is
// granted, and rounding stands under a root. 0 for the others.
std::vector<double> norm_rounding(ValueNorm norm, const LayerInput& input);

// LayerScores in double.
struct ReferenceScores {
  std::vector<double> scores, second;
  double weight = 0;
};
ReferenceScores reference_layer_scores(const Recipe& recipe, const LayerInput& input);
// Its scores alone, [num_kv_heads, n].
std::vector<double> reference_scores(const Recipe& recipe, const LayerInput& input);

// The first score that lies further from its definition than absolute + relative x its size, as
// text; empty if none does. Infinities must be equal. `absolute` is one bound, or one for each.
std::string first_difference(std::span<const float> got, std::span<const double> expected,
                             double relative, double absolute);
std::string first_difference(std::span<const float> got, std::span<const double> expected,
                             double relative, std::span<const double> absolute);

RetentionOrders reference_orders(const Recipe& recipe, const LayerInput& input,
                                 const LayerScores& scores);

// The head of every slot of a layer, for the recipes that are orders.
std::vector<std::uint32_t> reference_slots(const Recipe& recipe, const RetentionOrders& orders,
                                           const std::vector<float>& scores,
                                           std::uint32_t num_tokens, std::uint64_t slots);

// -1, 0, 1 as `a` stands before, ties with or stands behind `b` (D1).
int compare_scores(float a, float b);

}  // namespace precis::kernels::test
