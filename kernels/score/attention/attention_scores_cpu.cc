// Computes each attention scorer's scores from its columns.
#include <algorithm>
#include <limits>

#include "kernels/score/attention/attention_columns.h"
#include "kernels/score/layer_weight.h"
#include "kernels/score/score.h"
#include "kernels/score/values/value_norms.h"

namespace precis::kernels {
namespace {

// Writes the scores of the columns, and +infinity for the tokens behind them, where the queries
// stand.
void place(const std::vector<float>& columns, std::uint32_t num_columns, std::uint32_t num_tokens,
           std::span<float> scores) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::size_t head = i / num_tokens, token = i % num_tokens;
    scores[i] = token < num_columns ? columns[head * num_columns + token]
                                    : std::numeric_limits<float>::infinity();
  }
}

// TOVA: every head gets the layer's mean.
void share_mean(std::uint32_t num_heads, std::span<float> scores) {
  const std::size_t n = scores.size() / num_heads;
  for (std::size_t t = 0; t < n; ++t) {
    double sum = 0;
    for (std::size_t h = 0; h < num_heads; ++h) sum += scores[h * n + t];
    const auto mean = static_cast<float>(sum / num_heads);
    for (std::size_t h = 0; h < num_heads; ++h) scores[h * n + t] = mean;
  }
}

// Multiplies the columns only, so a protected token keeps its infinity whatever its norm.
void multiply(const std::vector<float>& norms, std::uint32_t num_columns, std::uint32_t num_tokens,
              std::span<float> scores) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (i % num_tokens < num_columns) scores[i] *= norms[i];
  }
}

// LAVa: each head's largest norm, over all tokens.
std::vector<float> head_largest(std::vector<float> norms, std::uint32_t num_tokens) {
  for (auto head = norms.begin(); head != norms.end(); head += num_tokens) {
    std::fill(head, head + num_tokens, *std::max_element(head, head + num_tokens));
  }
  return norms;
}

// Defensive: raises columns below their head's mean to the mean.
void raise_to_mean(std::vector<float>& columns, std::uint32_t num_columns) {
  for (std::size_t first = 0; first < columns.size(); first += num_columns) {
    double sum = 0;
    for (std::size_t t = 0; t < num_columns; ++t) sum += columns[first + t];
    const auto mean = static_cast<float>(sum / num_columns);
    for (std::size_t t = 0; t < num_columns; ++t) {
      columns[first + t] = std::max(columns[first + t], mean);
    }
  }
}

// Defensive: norms as shares of a token's sum over the heads; 0 if all of them are 0.
void normalise_over_heads(std::vector<float>& norms, std::uint32_t num_tokens) {
  for (std::size_t t = 0; t < num_tokens; ++t) {
    double sum = 0;
    for (std::size_t i = t; i < norms.size(); i += num_tokens) sum += norms[i];
    for (std::size_t i = t; sum > 0 && i < norms.size(); i += num_tokens) {
      norms[i] = static_cast<float>(norms[i] / sum);
    }
  }
}

}  // namespace

void score_attention_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                         LayerScores& out) {
  const std::uint32_t n = input.num_tokens();
  AttentionWants wants;
  wants.mean = recipe.selector == Selector::kThreshold;
  wants.moments = recipe.layers == LayerAllocator::kPreference;
  wants.row_mass = recipe.scorer == Scorer::kDefensive;
  AttentionColumns attention = attention_columns(context, recipe, input, wants);
  const std::uint32_t columns = attention.op.columns;
  if (wants.moments) out.weight = preference_weight(recipe, attention);
  if (wants.mean) {
    out.second.resize(out.scores.size());
    place(attention.mean, columns, n, out.second);
  }
  if (recipe.scorer == Scorer::kDefensive) raise_to_mean(attention.scores, columns);
  place(attention.scores, columns, n, out.scores);
  switch (recipe.scorer) {
    case Scorer::kTova: return share_mean(input.num_kv_heads(), out.scores);
    case Scorer::kVatp:
      return multiply(value_norms(context, ValueNorm::kVL1, input), columns, n, out.scores);
    case Scorer::kLava:
      return multiply(head_largest(value_norms(context, ValueNorm::kVL1, input), n), columns, n,
                      out.scores);
    case Scorer::kDefensive: {
      std::vector<float> norms = value_norms(context, ValueNorm::kL1Exact, input);
      normalise_over_heads(norms, n);
      return multiply(norms, columns, n, out.scores);
    }
    default: return;
  }
}

}  // namespace precis::kernels
