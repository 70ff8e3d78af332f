#include "cachesvc/pipeline/default_recipe.h"

#include <algorithm>

#include "precis/reader_budget.h"

namespace precis {
namespace {

bool is_set(const msg::BudgetRow& layer) {
  const bool by_request =
      layer.scope != "built-in" && layer.scope != "config" && layer.scope != "profile";
  return by_request && !layer.recipe.empty();
}

}  // namespace

Recipe default_recipe(const Recipe& recipe, const msg::Budgets& budgets, const ModelSpec& model,
                      const Budget& asked) {
  const Recipe used = default_for(recipe, asked, budgets.effective.limit);
  if (std::ranges::any_of(budgets.layers, is_set)) return used;
  return for_byte_share(used, model, asked);
}

}  // namespace precis
