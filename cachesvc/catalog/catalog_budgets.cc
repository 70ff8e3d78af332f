#include <algorithm>

#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "precis/limits.h"

namespace precis {
namespace {

using Rows = Result<std::vector<SettingRow>>;

// More than a tenant can have.
constexpr std::size_t kBudgetRowsMax =
    2 * (limits::kSessionBudgetsMax + limits::kModelsPerTenantMax + limits::kBudgetRevisionsMax);
// The most revisions that one change forgets; later changes forget the rest.
constexpr std::size_t kForgottenPerChange = kSettingsPerChange / 2;

}  // namespace

BudgetTable::IsSession CatalogBudgets::is_session_of(std::string_view tenant) const {
  return [this, tenant](const std::string& name) {
    return agree_ || find_session(tenant, name).ok();  // in a cluster, another node may have it
  };
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
  // In a cluster, another node may have the session.
  return scope.session.empty() || agree_ ? Status() : find_session(tenant, scope.session).status();
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
    PRECIS_TRY(EntryForm::of(spec, recipe.encoding).validate());
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
  msg::BudgetRevision made;
  PRECIS_TRY(change_settings([&]() -> Rows {
    PRECIS_TRY(check_scope(tenant, request.scope));
    if (const std::string& session = request.scope.session; !session.empty()) {
      PRECIS_TRY(find_session(tenant, session).status());
    }
    PRECIS_ASSIGN(const auto planned, budgets_.changed(tenant, request, clock_.unix_ms()));
    made = planned.revision;
    PRECIS_ASSIGN(auto rows, rows_of(tenant, planned));
    return request.dry_run ? Rows(std::vector<SettingRow>()) : Rows(std::move(rows));
  }));
  return made;
}

Result<msg::BudgetRevision> CatalogBudgets::roll_back_budget(std::string_view tenant,
                                                             const msg::RollBackBudget& request) {
  msg::BudgetRevision made;
  PRECIS_TRY(change_settings([&]() -> Rows {
    const auto is_there = [&](const msg::BudgetScope& scope) {
      return check_scope(tenant, scope).ok();
    };
    PRECIS_ASSIGN(const auto planned,
                  budgets_.rolled_back(tenant, request, clock_.unix_ms(), is_there));
    made = planned.revision;
    PRECIS_ASSIGN(auto rows, rows_of(tenant, planned));
    return request.dry_run ? Rows(std::vector<SettingRow>()) : Rows(std::move(rows));
  }));
  return made;
}

Rows CatalogBudgets::rows_of(std::string_view tenant, const BudgetTable::Planned& planned) const {
  const msg::BudgetRevision& revision = planned.revision;
  if (revision.changes.size() > limits::kListPageRowsMax) {
    return Status::out_of_space(
        "the rollback changes " + std::to_string(revision.changes.size()) +
        " scopes, and a revision holds " + std::to_string(limits::kListPageRowsMax) +
        "; remove the budgets of sessions first, or roll back to a revision in between first");
  }
  for (const msg::BudgetChange& each : revision.changes) PRECIS_TRY(check_change(tenant, each));
  std::vector<SettingRow> rows;
  if (revision.changes.empty()) return rows;
  for (const StoredBudget& row : planned.rows) {
    // A session that sets nothing has no row.
    const bool is_left = row.session.empty() || !row.recipe.empty() || row.keep || row.limit;
    SettingRow& stored = rows.emplace_back(
        SettingRow{Table::kBudgets, budget_key(tenant, row.model, row.session), std::nullopt});
    if (is_left) stored.value = encode(row);
  }
  rows.push_back({Table::kMeta, revision_key(tenant, revision.number),
                  encode(StoredRevision{std::string(tenant), revision})});
  std::vector<std::uint64_t> forgotten = budgets_.kept(tenant).forgotten_by(revision);
  std::ranges::sort(forgotten);
  forgotten.resize(std::min(forgotten.size(), kForgottenPerChange));
  for (const std::uint64_t number : forgotten) {
    rows.push_back({Table::kMeta, revision_key(tenant, number), std::nullopt});
  }
  return rows;
}

Result<std::size_t> CatalogBudgets::remove_budgets(std::string_view tenant) {
  std::size_t removed = 0;
  for (std::size_t some = 1; some > 0; removed += some) {
    if (removed > kBudgetRowsMax) return Status::internal("budgets can't be removed");
    PRECIS_TRY(change_settings([&]() -> Rows {
      const BudgetTable::Keys keys = budgets_.keys(tenant);
      std::vector<SettingRow> rows;
      for (const msg::BudgetScope& scope : keys.scopes) {
        rows.push_back(
            {Table::kBudgets, budget_key(tenant, scope.model, scope.session), std::nullopt});
      }
      for (const std::uint64_t number : keys.revisions) {
        rows.push_back({Table::kMeta, revision_key(tenant, number), std::nullopt});
      }
      if (agree_) rows.resize(std::min(rows.size(), kSettingsPerChange));
      some = rows.size();
      return rows;
    }));
  }
  return removed;
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
