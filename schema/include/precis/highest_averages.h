// Seats that competitors take by their weights, as a budget's table shares entries among heads
// (policies/budgets.md, "Weighted layers"). Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace precis {

// `caps[c]` is how many seats competitor c can take. The results end when every cap is reached.
//
// Sainte-Lague: the k-th seat (from 0) of c has priority weights[c] / (2k + 1); ties to the lower
// index; weights that are all zero count as equal. Exact for f32 weights and caps below 2^27.
// Returns the competitor that takes each seat.
std::vector<std::uint32_t> highest_averages(std::span<const float> weights,
                                            std::span<const std::uint64_t> caps,
                                            std::uint64_t seats);
// How many seats each competitor takes under highest_averages(), without walking all seats.
std::vector<std::uint64_t> highest_averages_counts(std::span<const float> weights,
                                                   std::span<const std::uint64_t> caps,
                                                   std::uint64_t seats);

}  // namespace precis
