#include "cachesvc/pipeline/default_recipe.h"

#include "cachesvc/catalog/budgets.h"
#include "precis/reader_budget.h"

namespace precis {
Recipe default_recipe(const Recipe& recipe, const msg::Budgets& budgets, const ModelSpec& model,
                      const Budget& asked) {
  const Recipe used = default_for(recipe, asked, budgets.effective.limit);
  return recipe_is_set(budgets) ? used : for_few_bytes(used, model, asked);
}

}  // namespace precis
