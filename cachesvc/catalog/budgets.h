// The default recipe and budget, in layers from wide to narrow: built-in, config, profile, global,
// model, session. A layer that does not set a value inherits it from the wider one. Also the
// revisions of what a tenant has set: each is a numbered change, and can be rolled back. In memory
// only; the catalog stores the rows and the revisions.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cachesvc/catalog/budget_revisions.h"
#include "precis/budget_scope.h"
#include "precis/catalog_row.h"

namespace precis {

// The defaults if no layer sets any. They equal Config's defaults (cachesvc/base/config.h): the
// best recipe that needs only K and V (docs/which-recipe.md).
inline constexpr std::string_view kBuiltInRecipe = "global_kvdiff(encoding=int8, min_entries=128)";
inline constexpr Budget kBuiltInKeep{Budget::Kind::kRatio, 300'000};

// Sets what is in force from the layers: of each value, the narrowest that is set.
void settle(msg::Budgets& budgets);

// Whether a request has set the recipe in force: otherwise the recipe is built in, the
// configuration's, or that for the model's profile.
bool recipe_is_set(const msg::Budgets& budgets);

// The process's own defaults (config file). Every stored row overrides them.
struct BudgetDefaults {
  msg::BudgetRow row;
  std::string profile_recipe;  // for models with a fitting profile; empty: none
};

// Not thread-safe.
class BudgetTable {
 public:
  void put(StoredBudget row);
  bool has(std::string_view tenant, const msg::BudgetScope& scope) const;
  void erase(std::string_view tenant, const msg::BudgetScope& scope);  // its own row, if it has one
  std::vector<StoredBudget> rows(std::string_view tenant) const;
  // The rows and revisions of a tenant.
  struct Keys {
    std::vector<msg::BudgetScope> scopes;
    std::vector<std::uint64_t> revisions;
  };
  Keys keys(std::string_view tenant) const;
  const KeptRevisions& kept(std::string_view tenant) const;  // valid until the next change
  void put(std::string_view tenant, msg::BudgetRevision revision);
  void erase(std::string_view tenant, std::uint64_t revision);

  // A change of a tenant's rows, not yet made: the revision, and its rows afterwards.
  struct Planned {
    msg::BudgetRevision revision;
    std::vector<StoredBudget> rows;
  };
  // Plans the next revision. kInvalidArgument for a recipe that does not parse, a budget that no
  // segment can have, a keep above the limit of the same request, or a request that names nothing
  // to change; kConflict for a keep above the stored limit of the same scope, or if another
  // revision than the one that the request names is the newest; kOutOfSpace past
  // limits::kSessionBudgetsMax. Budgets of different kinds are not compared.
  Result<Planned> changed(std::string_view tenant, const msg::SetBudget& request,
                          std::uint64_t now_ms) const;
  // Plans a revision that sets every scope to what it was after an earlier one, except for sessions
  // and models that are gone. kNotFound if that one is not kept any more, or not yet there;
  // kConflict if it is the newest, or another one is than the one that the request names.
  using IsScope = std::function<bool(const msg::BudgetScope& scope)>;
  Result<Planned> rolled_back(std::string_view tenant, const msg::RollBackBudget& request,
                              std::uint64_t now_ms, const IsScope& is_scope) const;
  // The scopes in order. Without `from`, only those that are still there. kNotFound as
  // rolled_back(); kOutOfSpace for more than limits::kListPageRowsMax, or too large ones.
  Result<msg::BudgetChanges> compared(std::string_view tenant, const msg::CompareBudgets& which,
                                      const IsScope& is_scope) const;
  using IsSession = std::function<bool(const std::string& name)>;
  msg::BudgetRevisions revisions(std::string_view tenant, const msg::ListBudgetRevisions&) const;
  // Returns all layers of a scope and their effective values, and for the global scope what
  // sessions set. `model_name` names the scope's model, if there is one. `by_profile` is the recipe
  // for the model's profile, or empty.
  msg::Budgets merged(std::string_view tenant, const msg::BudgetScope& scope,
                      std::string_view model_name, const msg::BudgetRow& configured,
                      const std::string& by_profile, const IsSession& is_session) const;

 private:
  using Key = std::pair<std::string, ScopeKey>;  // tenant, scope
  using Rows = std::map<Key, StoredBudget>;
  const StoredBudget* find(std::string_view tenant, const msg::BudgetScope& scope) const;
  msg::BudgetValues values(std::string_view tenant, const msg::BudgetScope& scope) const;
  Rows::const_iterator first_session(std::string_view tenant) const;
  Status check_room(std::string_view tenant, const msg::BudgetScope& scope) const;
  std::uint64_t newest(std::string_view tenant) const;
  Status check_newest(std::string_view tenant, std::optional<std::uint64_t> expected) const;
  // kNotFound unless all revisions after this one are kept.
  Status check_kept(std::string_view tenant, std::uint64_t revision) const;
  // As KeptRevisions.
  KeptRevisions::Values values_after(std::string_view tenant, std::uint64_t revision) const;
  Planned planned(std::string_view tenant, msg::BudgetRevision revision,
                  std::uint64_t now_ms) const;

  Rows rows_;
  std::map<std::string, KeptRevisions, std::less<>> revisions_;  // by tenant; none is empty
};

}  // namespace precis
