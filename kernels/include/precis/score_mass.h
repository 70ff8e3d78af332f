// The score mass of entries: what a trim reports of what it leaves (policies/budgets.md, "Score
// mass").
#pragma once

#include "precis/recipe.h"

namespace precis::kernels {

// Returns what an entry adds to the mass: score - floor, and 0 if the score is not finite. `floor`
// must not exceed a finite score. kvprobe predicts a share of attention, and a few of its
// predictions are far above 1; they count as 1, or they would be nearly all of the mass.
double entry_mass(const Recipe& recipe, float score, float floor);

}  // namespace precis::kernels
