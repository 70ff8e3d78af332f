#include "kernels/allocate/allocate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/allocate/allocate_op.h"
#include "kernels/allocate/contest.h"
#include "kernels/select/select_op.h"

namespace precis::kernels {
namespace {

// The `limit` best ranked scores of each head. The k-th entry of a head need not be its k-th best:
// selectors have their own order, seats go by the scores.
Ranks best_ranks(const Recipe& recipe, const RetentionOrders& orders, std::span<const float> scores,
                 std::uint32_t num_tokens, std::uint64_t limit) {
  Ranks ranks(orders.order.size());
  for (std::size_t h = 0; h < orders.order.size(); ++h) {
    const auto& order = orders.order[h];
    for (std::size_t k = orders.protected_count; k < order.size(); ++k) {
      ranks[h].push_back(score_rank(scores[h * num_tokens + order[k]]));
    }
    if (recipe.selector != Selector::kTopk) {
      std::sort(ranks[h].begin(), ranks[h].end(), std::greater<>());
    }
    if (ranks[h].size() > limit) ranks[h].resize(limit);
  }
  return ranks;
}

// Ranked counts of a blend (policies.md 2.11, A3): round(share * flat count + floor((1 - share) *
// average)), half to even, where share is the adaptive part; then the heads whose rounding erred
// most are moved by one until the sum is exact.
std::vector<std::uint64_t> blend_counts(const Recipe& recipe, const Ranks& ranks,
                                        std::uint64_t slots) {
  const std::uint64_t alpha = recipe.ada_alpha_ppm;
  const std::uint64_t share = recipe.ada_mode == AdaMode::kPaperBlend ? alpha : kPpm - alpha;
  const std::size_t num_heads = ranks.size();
  const std::uint64_t floor_count = (kPpm - share) * (slots / num_heads) / kPpm;
  const std::vector<std::uint64_t> flat = flat_counts(ranks, slots);

  std::vector<std::uint64_t> counts(num_heads);
  std::vector<std::int64_t> error(num_heads);  // ppm of an entry, positive where rounded up
  std::uint64_t sum = 0;
  for (std::size_t h = 0; h < num_heads; ++h) {
    const std::uint64_t exact = share * flat[h] + floor_count * kPpm;
    const std::uint64_t rest = exact % kPpm;
    counts[h] = exact / kPpm;
    if (rest > kPpm / 2 || (rest == kPpm / 2 && counts[h] % 2 == 1)) ++counts[h];
    error[h] = static_cast<std::int64_t>(counts[h] * kPpm) - static_cast<std::int64_t>(exact);
    sum += counts[h];
  }
  while (sum != slots) {
    const bool add = sum < slots;
    std::size_t best = num_heads;
    for (std::size_t h = 0; h < num_heads; ++h) {
      if (add ? counts[h] == ranks[h].size() : counts[h] == 0) continue;
      if (best == num_heads || (add ? error[h] < error[best] : error[h] > error[best])) best = h;
    }
    counts[best] += add ? 1 : std::uint64_t(-1);
    error[best] += add ? std::int64_t{kPpm} : -std::int64_t{kPpm};
    sum += add ? 1 : std::uint64_t(-1);
  }
  return counts;
}

bool is_blend(const Recipe& recipe) {
  return recipe.heads == HeadAllocator::kAda &&
         (recipe.ada_mode == AdaMode::kPaperBlend || recipe.ada_mode == AdaMode::kRepoBlend);
}

// Sums in f64, head and token ascending, so that they are the same everywhere.
void measure_mass(std::span<const float> scores, LayerTurns& turns) {
  turns.floors.clear();
  turns.mass = 0;
  for (std::uint32_t h = 0; h < turns.num_kv_heads; ++h) {
    const auto head = scores.subspan(std::size_t{h} * turns.num_tokens, turns.num_tokens);
    float lowest = std::numeric_limits<float>::infinity();
    for (const float s : head) {
      if (std::isfinite(s)) lowest = std::min(lowest, s);
    }
    turns.floors.push_back(std::isfinite(lowest) ? lowest : 0.0f);
    for (const float s : head) {
      if (std::isfinite(s)) turns.mass += static_cast<double>(s) - turns.floors.back();
    }
  }
}

}  // namespace

Status allocate_cpu(const Recipe& recipe, const LayerInput& input, const LayerScores& scores,
                    const RetentionOrders& orders, std::uint64_t slots, LayerTurns& turns) {
  const std::uint32_t n = input.num_tokens(), num_heads = input.num_kv_heads();
  PRECIS_CHECK(orders.order.size() == num_heads && input.layer < input.num_layers);
  slots = std::min(slots, std::uint64_t{num_heads} * n);
  turns = {};
  turns.num_tokens = n;
  turns.num_kv_heads = num_heads;
  turns.protected_count = orders.protected_count;
  turns.weight = scores.weight;
  measure_mass(scores.scores, turns);
  if (recipe.heads == HeadAllocator::kTable) return {};
  if (recipe.layers == LayerAllocator::kGlobalFlat) {
    turns.ranks = best_ranks(recipe, orders, scores.scores, n, slots);
    return {};
  }

  const std::uint64_t in_turns =
      recipe.heads == HeadAllocator::kUniform
          ? slots
          : std::min(slots, std::uint64_t{orders.protected_count} * num_heads);
  turns.heads.reserve(slots);
  for (std::uint64_t slot = 0; slot < in_turns; ++slot) {
    turns.heads.push_back(static_cast<std::uint16_t>(slot % num_heads));
  }
  if (in_turns == slots) return {};

  const Ranks ranks = best_ranks(recipe, orders, scores.scores, n, slots - in_turns);
  if (is_blend(recipe)) {
    const auto counts = blend_counts(recipe, ranks, slots - in_turns);
    for (std::size_t h = 0; h < num_heads; ++h) {
      turns.heads.insert(turns.heads.end(), counts[h], static_cast<std::uint16_t>(h));
    }
    return {};
  }
  for (const std::uint32_t head :
       contest(recipe, ranks, orders.protected_count, slots - in_turns)) {
    turns.heads.push_back(static_cast<std::uint16_t>(head));
  }
  return {};
}

}  // namespace precis::kernels
