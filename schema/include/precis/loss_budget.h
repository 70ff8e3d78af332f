// Budgets that are a loss: the smallest one that costs no more, as measured with a profile
// (policies/budgets.md, "Losses").
#pragma once

#include <cstdint>
#include <string>

#include "precis/profile.h"
#include "precis/recipe.h"
#include "precis/types.h"

namespace precis {

// Returns `asked` unless it is Budget::Kind::kLoss. Else returns the smallest ratio whose measured
// loss is at most `asked`, with one standard error added, if no larger ratio lost more than `asked`
// on average; all entries if there is none. `num_tokens`: of the whole context, whose losses are
// those of the shortest measured context that is no shorter, or else of the longest.
// kInvalidArgument says how to get a profile with losses of this recipe. `profile` may be null.
Result<Budget> budget_for_loss(const Budget& asked, const Recipe& recipe, const Profile* profile,
                               std::uint32_t num_tokens);

// The canonical recipe without profile and min_entries, neither of which changes what was measured.
std::string measured_recipe(const Recipe& recipe);

}  // namespace precis
