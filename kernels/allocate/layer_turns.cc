#include "kernels/allocate/layer_turns.h"

#include <algorithm>
#include <numeric>

#include "kernels/allocate/allocate_op.h"

namespace precis::kernels {
namespace {

// Ranked counts of a blend (policies/budgets.md, "Blends"): round(share * flat count + floor((1 -
// share) * average)), half to even, where share is the adaptive part. Then the counts with the
// largest rounding errors are changed by one until the sum is exact.
std::vector<std::uint64_t> blend_counts(const Recipe& recipe, const Ranks& ranks,
                                        std::uint64_t slots) {
  const std::uint64_t alpha = recipe.ada_alpha_ppm;
  const std::uint64_t share = recipe.ada_mode == AdaMode::kPaperBlend ? alpha : kPpm - alpha;
  const std::size_t num_heads = ranks.size();
  const std::uint64_t floor_count = (kPpm - share) * (slots / num_heads) / kPpm;
  const std::vector<std::uint64_t> flat = flat_counts(ranks, slots);

  std::vector<std::uint64_t> counts(num_heads);
  std::vector<std::int64_t> error(num_heads);  // ppm of an entry, positive if rounded up
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

// The slots that heads take in turns before any of them competes.
std::uint64_t slots_in_turns(const Recipe& recipe, const LayerTurns& turns, std::uint64_t slots) {
  if (recipe.heads == HeadAllocator::kUniform) return slots;
  return std::min(slots, std::uint64_t{turns.protected_count} * turns.num_kv_heads);
}

}  // namespace

std::uint64_t ranks_wanted(const Recipe& recipe, const LayerTurns& turns, std::uint64_t slots) {
  if (recipe.heads == HeadAllocator::kTable) return 0;
  if (recipe.layers == LayerAllocator::kGlobalFlat) return slots;
  return slots - slots_in_turns(recipe, turns, slots);
}

void make_turns(const Recipe& recipe, std::uint64_t slots, Ranks ranks, LayerTurns& turns) {
  if (recipe.heads == HeadAllocator::kTable) return;
  if (recipe.layers == LayerAllocator::kGlobalFlat) {
    ranks.resize(turns.num_kv_heads);  // empty lists if no slot needs ranks
    turns.ranks = std::move(ranks);
    return;
  }
  const std::uint32_t num_heads = turns.num_kv_heads;
  const std::uint64_t in_turns = slots_in_turns(recipe, turns, slots);
  turns.heads.reserve(slots);
  turns.heads.resize(in_turns);
  // Writes one round, then doubles it by copying: faster than counting heads.
  std::uint16_t* heads = turns.heads.data();
  std::uint64_t dealt = std::min<std::uint64_t>(num_heads, in_turns);
  std::iota(heads, heads + dealt, std::uint16_t{0});
  while (dealt < in_turns) {
    const std::uint64_t more = std::min(dealt, in_turns - dealt);
    std::copy_n(heads, more, heads + dealt);
    dealt += more;
  }
  if (in_turns == slots) return;
  if (is_blend(recipe)) {
    const auto counts = blend_counts(recipe, ranks, slots - in_turns);
    for (std::size_t h = 0; h < num_heads; ++h) {
      turns.heads.insert(turns.heads.end(), counts[h], static_cast<std::uint16_t>(h));
    }
    return;
  }
  const auto takers = contest(recipe, ranks, turns.protected_count, slots - in_turns);
  turns.heads.resize(in_turns + takers.size());
  std::ranges::transform(takers, turns.heads.begin() + static_cast<std::ptrdiff_t>(in_turns),
                         [](std::uint32_t head) { return static_cast<std::uint16_t>(head); });
}

}  // namespace precis::kernels
