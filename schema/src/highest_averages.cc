#include "precis/highest_averages.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

namespace precis {
namespace {

// One competitor's next seat. An f32 weight times an odd number below 2^28 is exact in f64, so two
// priorities compare exactly by cross-multiplication.
struct Bid {
  double weight;
  std::uint64_t taken;
  std::uint32_t competitor;
  bool operator<(const Bid& o) const {  // std::priority_queue puts the largest on top
    const double mine = weight * static_cast<double>(2 * o.taken + 1);
    const double other = o.weight * static_cast<double>(2 * taken + 1);
    return mine != other ? mine < other : competitor > o.competitor;
  }
};

std::vector<double> usable_weights(std::span<const float> weights) {
  std::vector<double> usable(weights.begin(), weights.end());
  if (std::ranges::all_of(usable, [](double w) { return w == 0; })) {
    std::ranges::fill(usable, 1.0);
  }
  return usable;
}

// Continues from `taken` until `left` more seats are taken; calls `take` for each of them.
template <typename Take>
void bid(const std::vector<double>& weights, std::span<const std::uint64_t> caps,
         std::vector<std::uint64_t>& taken, std::uint64_t left, const Take& take) {
  std::priority_queue<Bid> bids;
  for (std::uint32_t c = 0; c < weights.size(); ++c) {
    if (taken[c] < caps[c]) bids.push({weights[c], taken[c], c});
  }
  for (; left > 0 && !bids.empty(); --left) {
    Bid best = bids.top();
    bids.pop();
    take(best.competitor);
    taken[best.competitor] = ++best.taken;
    if (best.taken < caps[best.competitor]) bids.push(best);
  }
}

}  // namespace

std::vector<std::uint32_t> highest_averages(std::span<const float> weights,
                                            std::span<const std::uint64_t> caps,
                                            std::uint64_t seats) {
  std::vector<std::uint64_t> taken(caps.size());
  std::vector<std::uint32_t> takers;
  bid(usable_weights(weights), caps, taken, seats, [&](std::uint32_t c) { takers.push_back(c); });
  return takers;
}

std::vector<std::uint64_t> highest_averages_counts(std::span<const float> weights,
                                                   std::span<const std::uint64_t> caps,
                                                   std::uint64_t seats) {
  const std::vector<double> usable = usable_weights(weights);
  // Seats of at least this priority; rounded down, so that no seat is counted that is not won.
  const auto at_least = [&](double priority) {
    std::vector<std::uint64_t> counts(caps.size());
    for (std::size_t c = 0; c < caps.size(); ++c) {
      const double seats_won = std::floor((usable[c] / priority * (1 - 1e-12) + 1) / 2);
      counts[c] =
          static_cast<std::uint64_t>(std::clamp(seats_won, 0.0, static_cast<double>(caps[c])));
    }
    return counts;
  };
  const auto sum = [](const std::vector<std::uint64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  };
  // Searches for a priority slightly above that of the last seat; bid() then assigns the remaining
  // seats.
  double low = 0, high = 4 * *std::ranges::max_element(usable);
  for (int i = 0; i < 64; ++i) {
    const double middle = low + (high - low) / 2;
    (middle > 0 && sum(at_least(middle)) <= seats ? high : low) = middle;
  }
  // Slightly further above, so that all seats of equal priority go through bid(), lower index
  // first.
  std::vector<std::uint64_t> taken = at_least(high * (1 + 1e-9));
  const std::uint64_t won = sum(taken);
  bid(usable, caps, taken, seats - std::min(seats, won), [](std::uint32_t) {});
  return taken;
}

}  // namespace precis
