#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"

namespace precis {

msg::Budgets CatalogBudgets::budgets(std::string_view tenant, const msg::BudgetScope& scope,
                                     const BudgetDefaults& configured) const {
  std::shared_lock lock(state_);
  std::string model_name, by_profile;
  if (scope.model) {
    const auto model = known_model(tenant, *scope.model);
    model_name = model.ok() ? (*model)->spec.name : scope.model->hex();
    const auto recipe = parse_recipe(configured.profile_recipe);
    if (model.ok() && recipe.ok() &&
        CatalogProfiles::fitting_profile(**model, *scope.model, *recipe).ok()) {
      by_profile = configured.profile_recipe;
    }
  }
  return budgets_.merged(tenant, scope, model_name, configured.row, by_profile);
}

// If the model has no profile, a recipe that needs one would fail every put that names no recipe.
Status CatalogBudgets::check_has_profile(std::string_view tenant,
                                         const msg::SetBudget& request) const {
  if (!request.recipe || request.recipe->empty()) return {};
  PRECIS_ASSIGN(const Recipe recipe, parse_recipe(*request.recipe));
  if (!recipe.needs_profile()) return {};
  const std::string needs = "recipe '" + *request.recipe + "' takes its budgets from a profile";
  if (!request.scope.model) {
    return Status::invalid(needs + ", which not every model has: set it for a model that has one");
  }
  return find_profile(tenant, *request.scope.model, recipe).status().with_context(needs);
}

Status CatalogBudgets::set_budget(std::string_view tenant, const msg::SetBudget& request) {
  std::lock_guard changing(changes_);
  if (request.scope.model && !find_model(tenant, *request.scope.model)) {
    return Status::not_found("model " + request.scope.model->hex() + " is not registered");
  }
  PRECIS_ASSIGN(StoredBudget row, budgets_.changed(tenant, request, clock_.unix_ms()));
  PRECIS_TRY(check_has_profile(tenant, request));
  Change change;
  change.put(Table::kBudgets, budget_key(tenant, row.model), encode(row));
  PRECIS_TRY(write(std::move(change), Durability::kWal));
  std::unique_lock lock(state_);
  budgets_.put(std::move(row));
  return {};
}

}  // namespace precis
