#include "kernels/allocate/turns.h"

#include <algorithm>
#include <bit>

namespace precis::kernels {
namespace {

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

std::vector<std::uint32_t> uniform_turns(std::span<const std::uint32_t> caps,
                                         std::uint32_t num_kv_heads, std::uint64_t seats) {
  const std::uint32_t rounds = caps.empty() ? 0 : *std::ranges::max_element(caps);
  std::vector<std::uint32_t> takers;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (std::uint32_t head = 0; head < num_kv_heads; ++head) {
      for (std::uint32_t layer = 0; layer < caps.size(); ++layer) {
        if (round >= caps[layer]) continue;
        if (takers.size() == seats) return takers;
        takers.push_back(layer * num_kv_heads + head);
      }
    }
  }
  return takers;
}

}  // namespace precis::kernels
