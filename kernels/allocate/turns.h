// Seats that need no score: turns, and highest averages (policies.md, "The joining order").
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace precis::kernels {

// `caps[c]`: how many seats competitor c can take. All results stop where the caps do.

// Which seats each competitor takes.
class Deal {
 public:
  virtual ~Deal() = default;
  // How many c takes.
  virtual std::uint64_t count(std::size_t c) const = 0;
  // Appends the seats of c, ascending from `before` + 1 on.
  virtual void append_seats(std::size_t c, std::uint64_t before,
                            std::vector<std::uint32_t>& out) const = 0;
};
// One after the other, lowest first, those who are full left out.
std::unique_ptr<Deal> deal_in_turns(std::vector<std::uint64_t> caps, std::uint64_t seats);
// As highest_averages() says.
std::unique_ptr<Deal> deal_by_averages(std::span<const float> weights,
                                       std::span<const std::uint64_t> caps, std::uint64_t seats);

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
