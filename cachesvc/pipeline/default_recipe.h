// The recipe of a put that names none.
#pragma once

#include "precis/messages.h"
#include "precis/recipe.h"

namespace precis {

// `recipe`: the one in force in `budgets`. `asked`: the put's budget. default_for() applies to
// every recipe, and for_few_bytes() only if no request has set one in any scope.
Recipe default_recipe(const Recipe& recipe, const msg::Budgets& budgets, const ModelSpec& model,
                      const Budget& asked);

}  // namespace precis
