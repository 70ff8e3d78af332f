#include "cachesvc/pipeline/default_recipe.h"

#include "cachesvc/catalog/budgets.h"
#include "precis/loss_budget.h"
#include "precis/reader_budget.h"

namespace precis {
Recipe default_recipe(const Recipe& recipe, const msg::Budgets& budgets, const ModelSpec& model,
                      const Budget& asked, std::uint32_t num_tokens) {
  const Recipe used = default_for(recipe, asked, budgets.effective.limit);
  return recipe_is_set(budgets) ? used : with_fitting_rows(used, model, asked, num_tokens);
}

Result<Budget> budget_of_put(const Catalog& catalog, std::string_view tenant, const Digest& model,
                             const Recipe& recipe, const Budget& asked, std::uint32_t num_tokens) {
  if (asked.kind != Budget::Kind::kLoss) return asked;
  ModelCatalog::FoundProfile found;
  if (recipe.needs_profile()) {
    PRECIS_ASSIGN(found, catalog.find_profile(tenant, model, recipe));
  }
  return budget_for_loss(asked, recipe, found.profile.get(), num_tokens);
}

}  // namespace precis
