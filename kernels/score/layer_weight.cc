#include "kernels/score/layer_weight.h"

#include <cmath>

#include "kernels/score/layer_weight_op.h"

namespace precis::kernels {

float entropy_weight(const SegmentShape& shape, std::span<const float> scores) {
  double total = 0, sum = 0;  // of s and of s ln s
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::size_t token = i % shape.num_tokens;
    if (token < shape.sinks || token >= shape.num_tokens - shape.recent) continue;
    if (!is_share(scores[i])) continue;
    const double s = scores[i];
    total += s;
    sum += s * std::log(s);
  }
  return weight_of_shares(total, sum, scores.size());
}

float preference_weight(const Recipe& recipe, const AttentionColumns& attention) {
  return PreferencePowers::of(recipe).weight(attention.entropy, attention.variance);
}

}  // namespace precis::kernels
