// A third implementation of each stage, directly from its definition: slow, in double, for tests
// only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "precis/kernels.h"

namespace precis::kernels::test {

// [num_q_heads, pushed], over the layer's keys that each query sees; queries that stand `behind`
// see all keys.
std::vector<float> reference_lse(const LayerInput& input, bool behind = false);
// [num_q_heads, head_dim, head_dim] of W_O.
std::vector<float> reference_gram(const LayerInput& input);
// [num_kv_heads, n].
std::vector<double> reference_norms(ValueNorm norm, const LayerInput& input);
// How far an f32 norm may be from reference_norms() because its sums are rounded, in addition to a
// relative bound. A form of kL2Gram or an output of kL1Exact that is close to 0 is the difference
// of large products, so the bound allows 2^-20 of these products. It is 0 for the other norms.
std::vector<double> norm_rounding(ValueNorm norm, const LayerInput& input);

// How many last tokens `recent` and `recent_share` protect after `sinks` of `n` tokens.
std::uint32_t reference_recent(const Recipe& recipe, std::uint32_t n, std::uint32_t sinks);

// LayerScores in double.
struct ReferenceScores {
  std::vector<double> scores, second;
  double weight = 0;
};
ReferenceScores reference_layer_scores(const Recipe& recipe, const LayerInput& input);
// The scores alone, [num_kv_heads, n].
std::vector<double> reference_scores(const Recipe& recipe, const LayerInput& input);

// The first score whose distance from its definition exceeds absolute + relative x its size, as
// text; empty if there is none. Infinities must be equal. `absolute` is one bound for all scores,
// or one per score.
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

// -1, 0, 1 if `a` comes before, ties with, or comes after `b` (D1).
int compare_scores(float a, float b);

}  // namespace precis::kernels::test
