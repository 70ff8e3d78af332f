// Integer arithmetic of guarantees (policies.md, "The joining order"; D6).
#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"
#include "precis/recipe.h"

namespace precis::kernels {

inline constexpr std::uint64_t kPpm = 1'000'000;

// Heads share by a mix of contest and average, not in an order (policies.md 2.11, A3).
inline bool is_blend(const Recipe& recipe) {
  return recipe.heads == HeadAllocator::kAda &&
         (recipe.ada_mode == AdaMode::kPaperBlend || recipe.ada_mode == AdaMode::kRepoBlend);
}

// Ranked entries that every head is sure of once heads have `ranked` ranked entries on average,
// over `protected_count` protected ones. Grows by at most one as `ranked` does.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint64_t guaranteed_entries(const Recipe& recipe,
                                                                  std::uint64_t protected_count,
                                                                  std::uint64_t ranked) {
  if (recipe.heads != HeadAllocator::kAda) return 0;
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
