// The score mass of entries, which quality targets share out (policies/budgets.md, "Quality
// targets").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "precis/recipe.h"

namespace precis::kernels {

// Returns what an entry adds to the mass: score - floor, and 0 if the score is not finite. `floor`
// must not exceed a finite score. kvprobe predicts a share of attention, and a few of its
// predictions are far above 1; they count as 1, or they would be nearly all of the mass.
double entry_mass(const Recipe& recipe, float score, float floor);

struct LayerMass {
  std::vector<float> floors;  // [num_kv_heads], the lowest finite score of each head
  double mass = 0;            // the sum of entry_mass() over all tokens
};
// scores: [num_kv_heads, n]. Sums in f64, head and token ascending, so that the result is the same
// everywhere.
LayerMass measure_mass(const Recipe& recipe, std::span<const float> scores,
                       std::uint32_t num_kv_heads);

}  // namespace precis::kernels
