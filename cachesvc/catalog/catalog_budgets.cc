#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "precis/limits.h"

namespace precis {

BudgetTable::IsSession CatalogBudgets::is_session_of(std::string_view tenant) const {
  return [this, tenant](const std::string& name) { return find_session(tenant, name).ok(); };
}

msg::Budgets CatalogBudgets::budgets(std::string_view tenant, const msg::BudgetScope& asked,
                                     const BudgetDefaults& configured) const {
  std::shared_lock lock(state_);
  msg::BudgetScope scope = asked;
  if (!scope.model && !scope.session.empty()) scope.model = model_of(tenant, scope.session);
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
  return budgets_.merged(tenant, scope, model_name, configured.row, by_profile,
                         is_session_of(tenant));
}

std::vector<std::string> CatalogBudgets::sessions_with_budgets(std::string_view tenant) const {
  std::shared_lock lock(state_);
  std::vector<std::string> names;
  for (const StoredBudget& row : budgets_.rows(tenant)) {
    if (!row.session.empty()) names.push_back(row.session);
  }
  return names;
}

Status CatalogBudgets::check_scope(std::string_view tenant, const msg::BudgetScope& scope) const {
  if (scope.model && !scope.session.empty()) {
    return Status::invalid("a change is for a model or for session '" + scope.session +
                           "', not for both: a session's budget holds for all puts that name it");
  }
  if (scope.model && !find_model(tenant, *scope.model)) {
    return Status::not_found("model " + scope.model->hex() + " is not registered");
  }
  return scope.session.empty() ? Status() : find_session(tenant, scope.session).status();
}

// Refuses a scope that is not there, and a recipe that needs a profile and has none. If the model
// has no profile, a recipe that needs one would fail every put that names no recipe.
Status CatalogBudgets::check_change(std::string_view tenant,
                                    const msg::BudgetChange& change) const {
  PRECIS_TRY(check_scope(tenant, change.scope));
  if (change.after.recipe.empty() || change.after.recipe == change.before.recipe) return {};
  PRECIS_ASSIGN(const Recipe recipe, parse_recipe(change.after.recipe));
  const std::string& session = change.scope.session;
  const auto model = session.empty() ? change.scope.model : model_of(tenant, session);
  if (model) {
    PRECIS_ASSIGN(const ModelSpec spec, this->model(tenant, *model));
    PRECIS_TRY(RowForm::of(spec, recipe.encoding).validate());
  }
  if (!recipe.needs_profile()) return {};
  const std::string needs = "recipe '" + change.after.recipe + "' takes a profile";
  if (!model && !session.empty()) {
    return Status::invalid(needs + ", which belongs to a model, and session '" + session +
                           "' has no turn yet that says its model");
  }
  if (!model) {
    return Status::invalid(needs + ", which not every model has: set it for a model that has one");
  }
  return find_profile(tenant, *model, recipe).status().with_context(needs);
}

Result<msg::BudgetRevision> CatalogBudgets::set_budget(std::string_view tenant,
                                                       const msg::SetBudget& request) {
  std::lock_guard changing(changes_);
  PRECIS_TRY(check_scope(tenant, request.scope));
  PRECIS_ASSIGN(BudgetTable::Planned planned, budgets_.changed(tenant, request, clock_.unix_ms()));
  return store(tenant, std::move(planned), request.dry_run);
}

Result<msg::BudgetRevision> CatalogBudgets::roll_back_budget(std::string_view tenant,
                                                             const msg::RollBackBudget& request) {
  std::lock_guard changing(changes_);
  PRECIS_ASSIGN(
      BudgetTable::Planned planned,
      budgets_.rolled_back(tenant, request, clock_.unix_ms(), [&](const msg::BudgetScope& scope) {
        return check_scope(tenant, scope).ok();
      }));
  return store(tenant, std::move(planned), request.dry_run);
}

Result<msg::BudgetRevision> CatalogBudgets::store(std::string_view tenant,
                                                  BudgetTable::Planned planned, bool dry_run) {
  msg::BudgetRevision& revision = planned.revision;
  if (revision.changes.size() > limits::kListPageRowsMax) {
    return Status::out_of_space(
        "the rollback changes " + std::to_string(revision.changes.size()) +
        " scopes, and a revision holds " + std::to_string(limits::kListPageRowsMax) +
        "; remove the budgets of sessions first, or roll back to a revision in between first");
  }
  for (const msg::BudgetChange& each : revision.changes) PRECIS_TRY(check_change(tenant, each));
  if (dry_run || revision.changes.empty()) return std::move(revision);
  Change change;
  const auto is_left = [](const StoredBudget& row) {  // a session that sets nothing has no row
    return row.session.empty() || !row.recipe.empty() || row.keep || row.limit;
  };
  for (const StoredBudget& row : planned.rows) {
    std::string key = budget_key(tenant, row.model, row.session);
    if (is_left(row)) {
      change.put(Table::kBudgets, std::move(key), encode(row));
    } else {
      change.erase(Table::kBudgets, std::move(key));
    }
  }
  change.put(Table::kMeta, revision_key(tenant, revision.number),
             encode(StoredRevision{std::string(tenant), revision}));
  for (const std::uint64_t number : budgets_.forgotten_by(tenant, revision)) {
    change.erase(Table::kMeta, revision_key(tenant, number));
  }
  PRECIS_TRY(write(std::move(change), Durability::kWal));
  std::unique_lock lock(state_);
  for (StoredBudget& row : planned.rows) {
    if (!is_left(row)) {
      budgets_.erase(tenant, {{}, row.session});
    } else {
      budgets_.put(std::move(row));
    }
  }
  budgets_.put(tenant, revision);
  return std::move(revision);
}

Result<std::size_t> CatalogBudgets::remove_budgets(std::string_view tenant) {
  std::lock_guard changing(changes_);
  const BudgetTable::Keys keys = budgets_.keys(tenant);
  Change change;
  for (const msg::BudgetScope& scope : keys.scopes) {
    change.erase(Table::kBudgets, budget_key(tenant, scope.model, scope.session));
  }
  for (const std::uint64_t number : keys.revisions) {
    change.erase(Table::kMeta, revision_key(tenant, number));
  }
  const std::size_t rows = keys.scopes.size() + keys.revisions.size();
  if (rows == 0) return rows;
  PRECIS_TRY(write(std::move(change), Durability::kWal));
  std::unique_lock lock(state_);
  budgets_.erase(tenant);
  return rows;
}

msg::BudgetRevisions CatalogBudgets::budget_revisions(
    std::string_view tenant, const msg::ListBudgetRevisions& request) const {
  std::shared_lock lock(state_);
  return budgets_.revisions(tenant, request);
}

Result<msg::BudgetChanges> CatalogBudgets::compare_budgets(std::string_view tenant,
                                                           const msg::CompareBudgets& which) const {
  std::shared_lock lock(state_);
  return budgets_.compared(tenant, which, [&](const msg::BudgetScope& scope) {
    return check_scope(tenant, scope).ok();
  });
}

}  // namespace precis
