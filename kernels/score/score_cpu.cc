#include "kernels/score/score.h"

#include <algorithm>

#include "kernels/score/layer_weight.h"
#include "kernels/score/random_op.h"
#include "kernels/score/values/value_norms.h"

namespace precis::kernels {
namespace {

void score_position(const LayerInput& input, std::span<float> scores) {
  // Exact: limits::kPathTokensMax positions fit an f32's mantissa.
  for (std::uint32_t h = 0; h < input.num_kv_heads(); ++h) {
    float* const head = scores.data() + std::size_t{h} * input.num_tokens();
    for (std::uint32_t t = 0; t < input.num_tokens(); ++t) {
      head[t] = static_cast<float>(input.begin + t);
    }
  }
}

void score_random(const Recipe& recipe, const LayerInput& input, std::span<float> scores) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto head = static_cast<std::uint32_t>(i / input.num_tokens());
    const auto position = static_cast<std::uint32_t>(input.begin + i % input.num_tokens());
    scores[i] = random_score(recipe.seed, input.layer, head, position);
  }
}

Status score_tokens(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                    LayerScores& out) {
  if (is_attention(recipe.scorer)) {
    score_attention_cpu(context, recipe, input, out);
    return {};
  }
  const std::span<float> scores = out.scores;
  switch (recipe.scorer) {
    case Scorer::kStreamingLlm: score_position(input, scores); return {};
    case Scorer::kRandom: score_random(recipe, input, scores); return {};
    case Scorer::kKnorm: score_knorm_cpu(context, input, scores); return {};
    case Scorer::kKeydiff: score_keydiff_cpu(context, input, scores); return {};
    case Scorer::kKvdiff: score_kvdiff_cpu(context, input, scores); return {};
    case Scorer::kKvprobe: score_kvprobe_cpu(context, input, scores); return {};
    case Scorer::kLagkv:
    case Scorer::kLocalkv: score_partitions_cpu(context, recipe, input, scores); return {};
    case Scorer::kExpectedAttention:
      score_expected_attention_cpu(context, recipe, input, scores);
      return {};
    case Scorer::kExternal:
      PRECIS_CHECK(input.scores.size() == scores.size());
      std::ranges::copy(input.scores, scores.begin());
      return {};
    default:
      return Status::unsupported("scorer " + std::to_string(static_cast<int>(recipe.scorer)) +
                                 " is not in this build");
  }
}

// CriticalKV's second score (policies/scores.md): (s + epsilon) x output norm.
std::vector<float> second_stage(const CpuContext& context, const Recipe& recipe,
                                const LayerInput& input, std::span<const float> scores) {
  const auto epsilon = static_cast<float>(recipe.epsilon_ppm / 1e6);
  std::vector<float> second = value_norms(context, recipe.value_norm, input);
  for (std::size_t i = 0; i < second.size(); ++i) second[i] *= scores[i] + epsilon;
  return second;
}

}  // namespace

Status score_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                 LayerScores& out) {
  const std::uint32_t n = input.num_tokens();
  out.scores.assign(std::size_t{input.num_kv_heads()} * n, 0.0f);
  out.second.clear();
  out.weight = 0;
  PRECIS_TRY(score_tokens(context, recipe, input, out));
  if (recipe.selector == Selector::kTwoStage) {
    out.second = second_stage(context, recipe, input, out.scores);
  }
  if (recipe.layers == LayerAllocator::kEntropy) {
    out.weight = entropy_weight(SegmentShape::of(recipe, input.layer, input.begin, n), out.scores);
  }
  return {};
}

}  // namespace precis::kernels
