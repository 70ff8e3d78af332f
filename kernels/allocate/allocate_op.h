// Integer arithmetic of seats and guarantees (policies.md, "The joining order"; D6).
#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"
#include "precis/recipe.h"

namespace precis::kernels {

inline constexpr std::uint64_t kPpm = 1'000'000;

// Uniform layers take turns, so slot i (from 0) of a layer is this seat (from 1) of the segment.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint64_t global_seat(std::uint64_t slot, std::uint32_t layer,
                                                           std::uint32_t num_layers) {
  return slot * num_layers + layer + 1;
}
// How many of a layer's slots have a seat of at most `entries`.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint64_t layer_slots(std::uint64_t entries,
                                                           std::uint32_t layer,
                                                           std::uint32_t num_layers) {
  return entries > layer ? (entries - layer - 1) / num_layers + 1 : 0;
}

// Ranked entries that every head is sure of once heads have `ranked` ranked entries on average,
// over `protected_count` protected ones. Grows by at most one as `ranked` does.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint64_t guaranteed_entries(const Recipe& recipe,
                                                                  std::uint64_t protected_count,
                                                                  std::uint64_t ranked) {
  const std::uint64_t alpha = recipe.ada_alpha_ppm;
  if (recipe.ada_mode == AdaMode::kGuaranteeExclWindow) return alpha * ranked / kPpm;
  const std::uint64_t budget = protected_count + ranked;
  std::uint64_t sure = alpha * budget / kPpm;
  if (recipe.count_rule == CountRule::kKvpressDouble && alpha > 0) {
    // kvpress: max(1, int(n_kept * alpha)) in doubles.
    sure = static_cast<std::uint64_t>(static_cast<double>(budget) *
                                      (static_cast<double>(alpha) / 1e6));
    sure = sure > 0 ? sure : 1;
  }
  return sure > protected_count ? sure - protected_count : 0;
}

}  // namespace precis::kernels
