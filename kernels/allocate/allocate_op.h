// Integer arithmetic of guarantees (policies/budgets.md, "Ada with a guarantee"; D6).
#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"
#include "precis/recipe.h"

namespace precis::kernels {

inline constexpr std::uint64_t kPpm = 1'000'000;

// Whether heads get a mix of contest and average, which defines counts but no order
// (policies/budgets.md, "Blends").
inline bool is_blend(const Recipe& recipe) {
  return recipe.heads == HeadAllocator::kAda &&
         (recipe.ada_mode == AdaMode::kPaperBlend || recipe.ada_mode == AdaMode::kRepoBlend);
}

// The guarantee per head, in a form that can be passed to a device.
struct Guarantee {
  bool any = false;  // the recipe's heads are kAda
  bool excludes_window = false;
  bool as_kvpress = false;
  std::uint64_t alpha_ppm = 0;

  static Guarantee of(const Recipe& recipe) {
    return {recipe.heads == HeadAllocator::kAda, recipe.ada_mode == AdaMode::kGuaranteeExclWindow,
            recipe.count_rule == CountRule::kKvpressDouble, recipe.ada_alpha_ppm};
  }
  // Ranked entries that every head is guaranteed once heads have `ranked` ranked entries on
  // average, besides `protected_count` protected ones. Grows by at most one when `ranked` does.
  PRECIS_HOST_DEVICE PRECIS_INLINE std::uint64_t entries(std::uint64_t protected_count,
                                                         std::uint64_t ranked) const {
    if (!any) return 0;
    if (excludes_window) return alpha_ppm * ranked / kPpm;
    const std::uint64_t budget = protected_count + ranked;
    std::uint64_t sure = alpha_ppm * budget / kPpm;
    if (as_kvpress && alpha_ppm > 0) {
      // kvpress: max(1, int(n_kept * alpha)) in doubles.
      sure = static_cast<std::uint64_t>(static_cast<double>(budget) *
                                        (static_cast<double>(alpha_ppm) / 1e6));
      sure = sure > 0 ? sure : 1;
    }
    return sure > protected_count ? sure - protected_count : 0;
  }
};

inline std::uint64_t guaranteed_entries(const Recipe& recipe, std::uint64_t protected_count,
                                        std::uint64_t ranked) {
  return Guarantee::of(recipe).entries(protected_count, ranked);
}

}  // namespace precis::kernels
