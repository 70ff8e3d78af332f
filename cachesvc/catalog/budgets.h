// The default recipe and budget, in layers from wide to narrow: built-in, config, profile, global,
// model. A layer that sets neither inherits from the wider one. In memory only; the catalog stores
// the rows.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "precis/catalog_row.h"

namespace precis {

// The defaults if no layer sets any. They equal Config's defaults (cachesvc/base/config.h): the
// best recipe that needs only K and V (docs/which-recipe.md).
inline constexpr std::string_view kBuiltInRecipe = "global_kvdiff(min_entries=128)";
inline constexpr std::uint32_t kBuiltInKeepPpm = 300'000;

// The process's own defaults (config file). Every stored row overrides them.
struct BudgetDefaults {
  msg::BudgetRow row;
  std::string profile_recipe;  // for models with a fitting profile; empty: none
};

// Not thread-safe.
class BudgetTable {
 public:
  void put(StoredBudget row);
  void erase(std::string_view tenant, const Digest& model);  // the model's own row, if it has one
  // Returns the current row as `request` changes it, with the tenant's next version. Does not put
  // it. kInvalidArgument for a recipe that does not parse, a keep that no segment can have, or a
  // request with neither.
  Result<StoredBudget> changed(std::string_view tenant, const msg::SetBudget& request,
                               std::uint64_t now_ms) const;
  // Returns all layers of a scope and their effective values. `model_name` names the scope's model,
  // if there is one. `by_profile` is the recipe for the model's profile, or empty.
  msg::Budgets merged(std::string_view tenant, const msg::BudgetScope& scope,
                      std::string_view model_name, const msg::BudgetRow& configured,
                      const std::string& by_profile) const;

 private:
  using Key = std::pair<std::string, std::optional<Digest>>;  // tenant, model
  const StoredBudget* find(std::string_view tenant, const std::optional<Digest>& model) const;

  std::map<Key, StoredBudget> rows_;
};

}  // namespace precis
