// The recipes that users know by name (policies.md, "Presets"; D17 for the parity presets).
#pragma once

#include <span>

#include "precis/recipe.h"

namespace precis {

// Sorted by name; each recipe's `preset` is its name.
std::span<const Recipe> preset_recipes();

// `preset` applied to the scores of `base`, as in "criticalkv(tova)". kInvalidArgument if `preset`
// cannot build on another.
Result<Recipe> build_on(const Recipe& preset, const Recipe& base);

}  // namespace precis
