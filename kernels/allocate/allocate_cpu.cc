#include "kernels/allocate/allocate.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

#include "kernels/allocate/allocate_op.h"
#include "kernels/select/select_op.h"

namespace precis::kernels {
namespace {

// Seat priorities: ranks[h][k] is the rank of head h's k-th largest ranked score.
using Priorities = std::vector<std::vector<std::uint32_t>>;

Priorities ranked_priorities(const Recipe& recipe, const RetentionOrders& orders,
                             std::span<const float> scores, std::uint32_t num_tokens) {
  Priorities priorities(orders.order.size());
  for (std::size_t h = 0; h < orders.order.size(); ++h) {
    const auto& order = orders.order[h];
    for (std::size_t k = orders.protected_count; k < order.size(); ++k) {
      priorities[h].push_back(score_rank(scores[h * num_tokens + order[k]]));
    }
    if (recipe.selector != Selector::kTopk) {
      std::sort(priorities[h].begin(), priorities[h].end(), std::greater<>());
    }
  }
  return priorities;
}

// Heads by their next ranked score, best first, ties to the lower head. A head's queued priority
// may be that of an entry it has since been given; such a one is only too high, and is renewed
// when it surfaces.
class FlatMerge {
 public:
  explicit FlatMerge(const Priorities& priorities) : priorities_(priorities) {
    taken_.resize(priorities.size());
    for (std::size_t h = 0; h < priorities.size(); ++h) push(h);
  }
  std::size_t taken(std::size_t head) const { return taken_[head]; }
  void take(std::size_t head) { ++taken_[head]; }
  // Takes and returns the head with the best remaining entry; there must be one.
  std::size_t take_best() {
    while (true) {
      const Item top = queue_.top();
      queue_.pop();
      const bool current = top.index == taken_[top.head];
      if (current) take(top.head);
      push(top.head);
      if (current) return top.head;
    }
  }

 private:
  struct Item {
    std::uint32_t rank;
    std::size_t head, index;
    bool operator<(const Item& o) const {  // std::priority_queue surfaces the largest
      return rank != o.rank ? rank < o.rank : head > o.head;
    }
  };
  void push(std::size_t head) {
    const std::size_t index = taken_[head];
    if (index < priorities_[head].size()) queue_.push({priorities_[head][index], head, index});
  }
  const Priorities& priorities_;
  std::vector<std::size_t> taken_;
  std::priority_queue<Item> queue_;
};

// Heads of the ranked slots under a guarantee, the first `slots` of them.
std::vector<std::uint32_t> guarantee_heads(const Recipe& recipe, const Priorities& priorities,
                                           std::uint32_t protected_count, std::uint64_t slots) {
  std::vector<std::uint32_t> heads;
  heads.reserve(slots + priorities.size());
  FlatMerge merge(priorities);
  for (std::uint64_t ranked = 1; heads.size() < slots; ++ranked) {
    const std::uint64_t sure = guaranteed_entries(recipe, protected_count, ranked);
    for (std::size_t h = 0; h < priorities.size(); ++h) {
      if (merge.taken(h) < sure) {
        merge.take(h);
        heads.push_back(static_cast<std::uint32_t>(h));
      }
    }
    while (heads.size() < ranked * priorities.size()) {
      heads.push_back(static_cast<std::uint32_t>(merge.take_best()));
    }
  }
  heads.resize(slots);
  return heads;
}

// Ranked counts of a blend (policies.md 2.11, A3): round(share * flat count + floor((1 - share) *
// average)), half to even, where share is the adaptive part; then the heads whose rounding erred
// most are moved by one until the sum is exact.
std::vector<std::uint64_t> blend_counts(const Recipe& recipe, const Priorities& priorities,
                                        std::uint64_t slots) {
  const std::uint64_t alpha = recipe.ada_alpha_ppm;
  const std::uint64_t share = recipe.ada_mode == AdaMode::kPaperBlend ? alpha : kPpm - alpha;
  const std::size_t num_heads = priorities.size();
  const std::uint64_t floor_count = (kPpm - share) * (slots / num_heads) / kPpm;
  FlatMerge merge(priorities);
  for (std::uint64_t i = 0; i < slots; ++i) merge.take_best();

  std::vector<std::uint64_t> counts(num_heads);
  std::vector<std::int64_t> error(num_heads);  // ppm of an entry, positive where rounded up
  std::uint64_t sum = 0;
  for (std::size_t h = 0; h < num_heads; ++h) {
    const std::uint64_t exact = share * merge.taken(h) + floor_count * kPpm;
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
      if (add ? counts[h] == priorities[h].size() : counts[h] == 0) continue;
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

}  // namespace

std::vector<std::uint32_t> LayerPlan::counts() const {
  std::vector<std::uint32_t> counts;
  for (const auto& head : kept) counts.push_back(static_cast<std::uint32_t>(head.size()));
  return counts;
}

Status allocate_cpu(const Recipe& recipe, const LayerInput& input, std::span<const float> scores,
                    const RetentionOrders& orders, std::uint64_t entries, LayerPlan& plan) {
  const std::uint32_t n = input.num_tokens(), num_heads = input.num_kv_heads();
  PRECIS_CHECK(orders.order.size() == num_heads && input.layer < input.num_layers);
  const std::uint64_t slots =
      std::min(layer_slots(entries, input.layer, input.num_layers), std::uint64_t{num_heads} * n);
  if (slots > 0 && global_seat(slots - 1, input.layer, input.num_layers) >
                       std::numeric_limits<std::uint32_t>::max()) {
    return Status::invalid("layer " + std::to_string(input.layer) + ": " + std::to_string(slots) +
                           " entries x " + std::to_string(input.num_layers) +
                           " layers exceed the 4294967295 seats of a segment");
  }
  const std::uint64_t in_turns =
      recipe.heads == HeadAllocator::kUniform
          ? slots
          : std::min(slots, std::uint64_t{orders.protected_count} * num_heads);

  plan.kept.assign(num_heads, {});
  plan.seats.clear();
  if (!recipe.is_cut()) plan.seats.resize(num_heads);
  const auto give = [&](std::size_t head, std::uint64_t slot) {
    plan.kept[head].push_back(orders.order[head][plan.kept[head].size()]);
    if (plan.seats.empty()) return;
    plan.seats[head].push_back(
        static_cast<std::uint32_t>(global_seat(slot, input.layer, input.num_layers)));
  };
  for (std::uint64_t slot = 0; slot < in_turns; ++slot) give(slot % num_heads, slot);
  if (in_turns == slots) return {};

  const Priorities priorities = ranked_priorities(recipe, orders, scores, n);
  if (is_blend(recipe)) {
    const auto counts = blend_counts(recipe, priorities, slots - in_turns);
    for (std::size_t h = 0; h < num_heads; ++h) {
      for (std::uint64_t k = 0; k < counts[h]; ++k) give(h, 0);
    }
    return {};
  }
  std::uint64_t slot = in_turns;
  for (const std::uint32_t head :
       guarantee_heads(recipe, priorities, orders.protected_count, slots - in_turns)) {
    give(head, slot++);
  }
  return {};
}

}  // namespace precis::kernels
