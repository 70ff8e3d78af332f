// Seats that need no score: turns, and highest averages (policies.md, "The joining order").
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace precis::kernels {

// `caps[c]`: how many seats competitor c can take. All results stop where the caps do.

// take(c) for who takes each of the first `seats`: one after the other, lowest first, those who are
// full left out.
template <typename Take>
void each_turn(std::span<const std::uint64_t> caps, std::uint64_t seats, const Take& take) {
  std::uint64_t most = 0;
  for (const std::uint64_t cap : caps) most = std::max(most, cap);
  for (std::uint64_t round = 0; round < most; ++round) {
    for (std::uint32_t c = 0; c < caps.size(); ++c) {
      if (round >= caps[c]) continue;
      if (seats-- == 0) return;
      take(c);
    }
  }
}
// All of them.
std::vector<std::uint32_t> take_turns(std::span<const std::uint64_t> caps, std::uint64_t seats);

// Heads of all layers, layer turning fastest: who, as layer * num_kv_heads + head, takes each of
// the first `seats`, where every head can take `cap`.
std::vector<std::uint32_t> uniform_turns(std::uint32_t num_layers, std::uint32_t num_kv_heads,
                                         std::uint32_t cap, std::uint64_t seats);

// Sainte-Lague: the k-th seat (from 0) of c has priority weights[c] / (2k + 1); ties to the lower
// index; weights that are all zero are all equal. Exact for f32 weights and caps below 2^27.
std::vector<std::uint32_t> highest_averages(std::span<const float> weights,
                                            std::span<const std::uint64_t> caps,
                                            std::uint64_t seats);
// How many seats each takes there, without walking all of them.
std::vector<std::uint64_t> highest_averages_counts(std::span<const float> weights,
                                                   std::span<const std::uint64_t> caps,
                                                   std::uint64_t seats);

}  // namespace precis::kernels
