// The recipes users know by name (policies.md, "Presets"; D17 for the parity presets).
#pragma once

#include <span>

#include "precis/recipe.h"

namespace precis {

// Sorted by name; each recipe's `preset` is its name.
std::span<const Recipe> preset_recipes();

}  // namespace precis
