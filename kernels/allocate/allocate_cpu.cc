#include "kernels/allocate/allocate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/allocate/allocate_op.h"
#include "kernels/allocate/contest.h"
#include "kernels/common/segment_shape.h"
#include "kernels/select/best_tokens.h"
#include "kernels/select/select_op.h"

namespace precis::kernels {
namespace {

// Ranked scores of each head from the best on, at most `limit` and as many as its order lists. The
// k-th entry of an order need not be the head's k-th best: selectors have their own order, seats go
// by the scores.
Ranks best_ranks(const CpuContext& context, const Recipe& recipe, const SegmentShape& shape,
                 const RetentionOrders& orders, std::span<const float> scores,
                 std::uint64_t limit) {
  Ranks ranks(orders.order.size());
  context.pool.parallel_for(ranks.size(), [&](std::size_t h) {
    const std::span<const std::uint32_t> order = orders.order[h];
    const float* of_head = scores.data() + h * shape.num_tokens;
    const std::size_t count = std::min<std::uint64_t>(limit, order.size() - orders.protected_count);
    ranks[h].reserve(count);
    if (recipe.selector == Selector::kTopk) {
      for (const std::uint32_t token : order.subspan(orders.protected_count, count)) {
        ranks[h].push_back(score_rank(of_head[token]));
      }
      return;
    }
    for (const std::uint64_t key :
         best_keys(of_head, shape.sinks, shape.num_tokens - shape.recent, count)) {
      ranks[h].push_back(~static_cast<std::uint32_t>(key >> 32));
    }
  });
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

}  // namespace

Status allocate_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                    const LayerScores& scores, const RetentionOrders& orders, std::uint64_t slots,
                    LayerTurns& turns) {
  const std::uint32_t n = input.num_tokens(), num_heads = input.num_kv_heads();
  PRECIS_CHECK(orders.order.size() == num_heads && input.layer < input.num_layers);
  slots = std::min(slots, std::uint64_t{num_heads} * n);
  turns = {};
  turns.num_tokens = n;
  turns.num_kv_heads = num_heads;
  turns.protected_count = orders.protected_count;
  turns.weight = scores.weight;
  const SegmentShape shape = SegmentShape::of(recipe, input.layer, input.begin, n);
  const auto ranks_of = [&](std::uint64_t limit) {
    return best_ranks(context, recipe, shape, orders, scores.scores, limit);
  };
  if (recipe.heads == HeadAllocator::kTable) return {};
  if (recipe.layers == LayerAllocator::kGlobalFlat) {
    turns.ranks = ranks_of(slots);
    return {};
  }

  const std::uint64_t in_turns =
      recipe.heads == HeadAllocator::kUniform
          ? slots
          : std::min(slots, std::uint64_t{orders.protected_count} * num_heads);
  turns.heads.reserve(slots);
  turns.heads.resize(in_turns);
  std::uint16_t next = 0;  // no division: there are as many slots as entries
  for (std::uint16_t& head : turns.heads) {
    head = next;
    next = next + 1u < num_heads ? next + 1 : 0;
  }
  if (in_turns == slots) return {};

  const Ranks ranks = ranks_of(slots - in_turns);
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

LayerMass measure_mass(std::span<const float> scores, std::uint32_t num_kv_heads) {
  const std::size_t n = scores.size() / num_kv_heads;
  LayerMass measured;
  for (std::size_t h = 0; h < num_kv_heads; ++h) {
    const auto head = scores.subspan(h * n, n);
    float lowest = std::numeric_limits<float>::infinity();
    for (const float s : head) {
      if (std::isfinite(s)) lowest = std::min(lowest, s);
    }
    measured.floors.push_back(std::isfinite(lowest) ? lowest : 0.0f);
    for (const float s : head) {
      if (std::isfinite(s)) measured.mass += static_cast<double>(s) - measured.floors.back();
    }
  }
  return measured;
}

}  // namespace precis::kernels
