// Seats that do not depend on scores: turns, and highest averages (precis/highest_averages.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "precis/highest_averages.h"

namespace precis::kernels {

// Below, `caps[c]` is how many seats competitor c can take. All results end when every cap is
// reached.

// An assignment of seats to competitors.
class Deal {
 public:
  virtual ~Deal() = default;
  // How many seats c takes.
  virtual std::uint64_t count(std::size_t c) const = 0;
  // Appends the seats of c, ascending, numbered from `before` + 1 on.
  virtual void append_seats(std::size_t c, std::uint64_t before,
                            std::vector<std::uint32_t>& out) const = 0;
};
// Competitors take one seat each in turns, lowest index first; competitors at their cap are
// skipped.
std::unique_ptr<Deal> deal_in_turns(std::vector<std::uint64_t> caps, std::uint64_t seats);
// Seats as highest_averages() assigns them.
std::unique_ptr<Deal> deal_by_averages(std::span<const float> weights,
                                       std::span<const std::uint64_t> caps, std::uint64_t seats);

// Turns over the heads of all layers, the layer changing fastest. Returns the head, as
// layer * num_kv_heads + head, that takes each of the first `seats`; every head of layer l can take
// caps[l].
std::vector<std::uint32_t> uniform_turns(std::span<const std::uint32_t> caps,
                                         std::uint32_t num_kv_heads, std::uint64_t seats);

}  // namespace precis::kernels
