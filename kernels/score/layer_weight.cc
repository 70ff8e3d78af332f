#include "kernels/score/layer_weight.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace precis::kernels {
namespace {

// Not negative and finite: what an f32 weight must be, whatever the powers above came to.
float as_weight(double x) {
  if (!(x > 0)) return 0;
  return static_cast<float>(std::min<double>(x, std::numeric_limits<float>::max()));
}

}  // namespace

float entropy_weight(const SegmentShape& shape, std::span<const float> scores) {
  double total = 0, sum = 0;  // of s and of s ln s
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::size_t token = i % shape.num_tokens;
    if (token < shape.sinks || token >= shape.num_tokens - shape.recent) continue;
    const double s = scores[i];
    if (!(s > 0) || std::isinf(s)) continue;
    total += s;
    sum += s * std::log(s);
  }
  if (total == 0) return 0;
  // With p = s / total: -sum p ln p = ln total - (sum s ln s) / total.
  return as_weight((std::log(total) - sum / total) / static_cast<double>(scores.size()));
}

float preference_weight(const Recipe& recipe, const AttentionColumns& attention) {
  const double entropy = std::pow(std::max(0.0, attention.entropy), 1e6 / recipe.tau1_ppm);
  return as_weight(entropy * std::pow(attention.variance, 1e6 / recipe.tau2_ppm));
}

}  // namespace precis::kernels
