#include "kernels/score/score.h"

#include <algorithm>

namespace precis::kernels {
namespace {

void score_position(const LayerInput& input, std::span<float> scores) {
  // Exact: limits::kPathTokensMax positions fit an f32's mantissa.
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i] = static_cast<float>(input.begin + i % input.num_tokens());
  }
}

}  // namespace

Status score_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                 std::span<float> scores) {
  PRECIS_CHECK(scores.size() == std::size_t{input.num_kv_heads()} * input.num_tokens());
  switch (recipe.scorer) {
    case Scorer::kStreamingLlm: score_position(input, scores); return {};
    case Scorer::kWindowAttention:
      score_window_attention_cpu(context, recipe, input, scores);
      return {};
    case Scorer::kKnorm: score_knorm_cpu(context, input, scores); return {};
    case Scorer::kKeydiff: score_keydiff_cpu(context, input, scores); return {};
    case Scorer::kLagkv: score_lagkv_cpu(context, recipe, input, scores); return {};
    case Scorer::kExternal:
      PRECIS_CHECK(input.scores.size() == scores.size());
      std::copy(input.scores.begin(), input.scores.end(), scores.begin());
      return {};
  }
  return Status::unsupported("scorer " + std::to_string(static_cast<int>(recipe.scorer)) +
                             " is not in this build");
}

}  // namespace precis::kernels
