// Default recipe and budget in layers: built-in, config, global, model; each says something or
// leaves it to the wider one. In memory only; the catalog stores the rows.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "precis/catalog_row.h"

namespace precis {

// What holds where nobody says anything, the same as Config's defaults (cachesvc/base/config.h):
// the best that needs nothing but K and V (docs/which-recipe.md).
inline constexpr std::string_view kBuiltInRecipe = "global_kvdiff(min_entries=128)";
inline constexpr std::uint32_t kBuiltInKeepPpm = 300'000;

// The process's own defaults (config file), below every stored row.
struct BudgetDefaults {
  msg::BudgetRow row;
  std::string profile_recipe;  // of models that have a profile which fits it; empty: none
};

// Not thread-safe.
class BudgetTable {
 public:
  void put(StoredBudget row);
  // The row that `request` makes of the present one, with the tenant's next version; not yet put.
  // kInvalidArgument for a recipe that does not parse, a keep that no segment could have, or
  // neither.
  Result<StoredBudget> changed(std::string_view tenant, const msg::SetBudget& request,
                               std::uint64_t now_ms) const;
  // All layers of a scope and what they come to. `model_name` names the scope's model, if it has
  // one; `by_profile` is the recipe that its profile brings, empty for none.
  msg::Budgets merged(std::string_view tenant, const msg::BudgetScope& scope,
                      std::string_view model_name, const msg::BudgetRow& configured,
                      const std::string& by_profile) const;

 private:
  using Key = std::pair<std::string, std::optional<Digest>>;  // tenant, model
  const StoredBudget* find(std::string_view tenant, const std::optional<Digest>& model) const;

  std::map<Key, StoredBudget> rows_;
};

}  // namespace precis
