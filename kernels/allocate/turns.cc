#include "kernels/allocate/turns.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <queue>

namespace precis::kernels {
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

class Turns final : public Deal {
 public:
  Turns(std::vector<std::uint64_t> caps, std::uint64_t seats)
      : caps_(std::move(caps)), counts_(caps_) {
    // The largest number of whole rounds that the seats cover, at most the largest cap.
    const auto taken = [&](std::uint64_t rounds) {
      std::uint64_t sum = 0;
      for (const std::uint64_t cap : caps_) sum += std::min(cap, rounds);
      return sum;
    };
    const std::uint64_t most = caps_.empty() ? 0 : *std::ranges::max_element(caps_);
    std::uint64_t whole = 0;
    for (std::uint64_t step = std::bit_floor(most); step > 0; step /= 2) {
      if (taken(whole + step) <= seats) whole += step;
    }
    std::uint64_t left = seats - taken(whole);
    for (std::uint64_t& count : counts_) {
      const bool one_more = count > whole && left > 0;
      count = std::min(count, whole) + (one_more ? 1 : 0);
      if (one_more) --left;
    }
  }

  std::uint64_t count(std::size_t c) const override { return counts_[c]; }

  void append_seats(std::size_t c, std::uint64_t before,
                    std::vector<std::uint32_t>& out) const override {
    // Between two consecutive caps, the same competitors take part in every round. So a
    // competitor's seats there are evenly spaced.
    std::vector<std::uint64_t> caps = caps_;
    std::ranges::sort(caps);
    std::uint64_t round = 0;
    for (std::size_t full = 0; round < counts_[c]; ++full) {
      const std::uint64_t last = std::min(caps[full], counts_[c]), active = caps.size() - full;
      if (last <= round) continue;
      const auto lower =
          std::count_if(caps_.begin(), caps_.begin() + static_cast<std::ptrdiff_t>(c),
                        [&](std::uint64_t cap) { return cap > round; });
      const std::uint64_t first = before + static_cast<std::uint64_t>(lower) + 1;
      const std::size_t at = out.size();
      out.resize(at + (last - round));
      for (std::uint64_t i = 0; i < last - round; ++i) {
        out[at + i] = static_cast<std::uint32_t>(first + i * active);
      }
      before += (last - round) * active;
      round = last;
    }
  }

 private:
  std::vector<std::uint64_t> caps_, counts_;
};

class Averages final : public Deal {
 public:
  Averages(std::span<const float> weights, std::span<const std::uint64_t> caps, std::uint64_t seats)
      : seats_(caps.size()) {
    std::uint32_t seat = 0;
    for (const std::uint32_t c : highest_averages(weights, caps, seats)) {
      seats_[c].push_back(++seat);
    }
  }
  std::uint64_t count(std::size_t c) const override { return seats_[c].size(); }
  void append_seats(std::size_t c, std::uint64_t before,
                    std::vector<std::uint32_t>& out) const override {
    for (const std::uint32_t seat : seats_[c]) {
      out.push_back(static_cast<std::uint32_t>(before + seat));
    }
  }

 private:
  std::vector<std::vector<std::uint32_t>> seats_;
};

}  // namespace

std::unique_ptr<Deal> deal_in_turns(std::vector<std::uint64_t> caps, std::uint64_t seats) {
  return std::make_unique<Turns>(std::move(caps), seats);
}
std::unique_ptr<Deal> deal_by_averages(std::span<const float> weights,
                                       std::span<const std::uint64_t> caps, std::uint64_t seats) {
  return std::make_unique<Averages>(weights, caps, seats);
}

std::vector<std::uint32_t> uniform_turns(std::uint32_t num_layers, std::uint32_t num_kv_heads,
                                         std::uint32_t cap, std::uint64_t seats) {
  const std::uint64_t heads = std::uint64_t{num_layers} * num_kv_heads;
  seats = std::min(seats, heads * cap);
  std::vector<std::uint32_t> takers;
  takers.reserve(seats);
  for (std::uint64_t i = 0; i < seats; ++i) {
    const std::uint64_t layer = i % num_layers, head = i / num_layers % num_kv_heads;
    takers.push_back(static_cast<std::uint32_t>(layer * num_kv_heads + head));
  }
  return takers;
}

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

}  // namespace precis::kernels
