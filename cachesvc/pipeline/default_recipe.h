// The recipe of a put that names none, and the budget of one that names a loss.
#pragma once

#include <string_view>

#include "cachesvc/catalog/catalog.h"
#include "precis/messages.h"
#include "precis/recipe.h"

namespace precis {

// `recipe`: the one in force in `budgets`. `asked`: the put's budget. default_for() applies to
// every recipe, and with_fitting_rows() only if no request has set one in any scope. `num_tokens`:
// of the segment.
Recipe default_recipe(const Recipe& recipe, const msg::Budgets& budgets, const ModelSpec& model,
                      const Budget& asked, std::uint32_t num_tokens);

// Returns the budget of a put with that recipe: `asked`, or the ratio that a loss means for a path
// of `num_tokens` (budget_for_loss()). Errors as find_profile() and budget_for_loss().
Result<Budget> budget_of_put(const Catalog& catalog, std::string_view tenant, const Digest& model,
                             const Recipe& recipe, const Budget& asked, std::uint32_t num_tokens);

}  // namespace precis
