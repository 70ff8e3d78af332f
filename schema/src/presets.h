// The recipes users know by name (policies.md, "Presets"; D17 for the parity presets).
#pragma once

#include <span>

#include "precis/recipe.h"

namespace precis {

// Sorted by name; each recipe's `preset` is its name.
std::span<const Recipe> preset_recipes();

// `preset` over the scores of `base`, as in "criticalkv(tova)". kInvalidArgument if it builds on
// none.
Result<Recipe> build_on(const Recipe& preset, const Recipe& base);

}  // namespace precis
