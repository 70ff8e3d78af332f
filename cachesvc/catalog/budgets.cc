#include "cachesvc/catalog/budgets.h"

#include <algorithm>

#include "precis/keep.h"
#include "precis/limits.h"
#include "precis/recipe.h"

namespace precis {
namespace {

constexpr std::uint64_t kPartsPerMillion = 1'000'000;
constexpr std::size_t kSessionRowsBytesMax = 256 << 10;

Status check_recipe(const std::string& recipe) {
  if (recipe.size() > limits::kRecipeBytesMax) {
    return Status::invalid("recipe has " + std::to_string(recipe.size()) + " B, at most " +
                           std::to_string(limits::kRecipeBytesMax) + " B are allowed");
  }
  return recipe.empty() ? Status() : parse_recipe(recipe).status();
}

// A value of a request: absent is unchanged, and all entries means unset.
void take(const std::optional<Budget>& wanted, std::optional<Budget>& value) {
  if (wanted) value = wanted->kind == Budget::Kind::kAll ? std::nullopt : wanted;
}

// Only what can be compared without a segment. A quality target that names no cap has the limit as
// its cap.
bool is_above(const Budget& keep, const Budget& limit) {
  if (keep.kind == Budget::Kind::kQuality && limit.kind == Budget::Kind::kRatio) {
    const std::uint64_t cap = keep.quality_cap_ppm();
    return cap != kPartsPerMillion && cap > limit.value;
  }
  return keep.kind == limit.kind && keep.value > limit.value;
}

Status check_values(const msg::BudgetValues& values, bool limit_is_stored) {
  if (!values.keep || !values.limit || !is_above(*values.keep, *values.limit)) return {};
  return {limit_is_stored ? StatusCode::kConflict : StatusCode::kInvalidArgument,
          "keep " + values.keep->to_string() + " is above the limit " + values.limit->to_string() +
              " of the same scope; raise the limit, or keep less"};
}

}  // namespace

void settle(msg::Budgets& budgets) {
  msg::BudgetRow& effective = budgets.effective;
  for (const msg::BudgetRow& layer : budgets.layers) {
    if (!layer.recipe.empty()) effective.recipe = layer.recipe;
    if (layer.keep) effective.keep = layer.keep;
    if (layer.limit) effective.limit = layer.limit;
    effective.version = std::max(effective.version, layer.version);
    effective.set_unix_ms = std::max(effective.set_unix_ms, layer.set_unix_ms);
  }
}

void BudgetTable::put(StoredBudget row) {
  Key key{row.tenant, {row.session, row.model}};
  rows_.insert_or_assign(std::move(key), std::move(row));
}

bool BudgetTable::has(std::string_view tenant, const msg::BudgetScope& scope) const {
  return find(tenant, scope) != nullptr;
}

void BudgetTable::erase(std::string_view tenant, const msg::BudgetScope& scope) {
  rows_.erase({std::string(tenant), key_of(scope)});
}

std::vector<StoredBudget> BudgetTable::rows(std::string_view tenant) const {
  std::vector<StoredBudget> rows;
  for (const auto& [key, row] : rows_) {
    if (key.first == tenant) rows.push_back(row);
  }
  return rows;
}

BudgetTable::Keys BudgetTable::keys(std::string_view tenant) const {
  Keys keys;
  for (auto row = rows_.lower_bound({std::string(tenant), {}});
       row != rows_.end() && row->first.first == tenant; ++row) {
    keys.scopes.push_back(scope_of(row->first.second));
  }
  const auto kept = revisions_.find(tenant);
  if (kept == revisions_.end()) return keys;
  for (const msg::BudgetRevision& each : kept->second) keys.revisions.push_back(each.number);
  return keys;
}

const StoredBudget* BudgetTable::find(std::string_view tenant,
                                      const msg::BudgetScope& scope) const {
  const auto row = rows_.find({std::string(tenant), key_of(scope)});
  return row == rows_.end() ? nullptr : &row->second;
}

// Sessions come after the tenant's other scopes; this is the least name.
BudgetTable::Rows::const_iterator BudgetTable::first_session(std::string_view tenant) const {
  return rows_.lower_bound({std::string(tenant), {std::string(1, '\0'), std::nullopt}});
}

Status BudgetTable::check_room(std::string_view tenant, const msg::BudgetScope& scope) const {
  if (scope.session.empty() || has(tenant, scope)) return {};
  std::size_t count = 0;
  for (auto row = first_session(tenant); row != rows_.end() && row->first.first == tenant; ++row) {
    ++count;
  }
  if (count < limits::kSessionBudgetsMax) return {};
  return Status::out_of_space(std::to_string(count) +
                              " sessions have a budget of their own, which is the limit; unset or "
                              "remove some, or set the budget of a model");
}

msg::BudgetValues BudgetTable::values(std::string_view tenant,
                                      const msg::BudgetScope& scope) const {
  const StoredBudget* const row = find(tenant, scope);
  return row ? msg::BudgetValues{row->recipe, row->keep, row->limit} : msg::BudgetValues{};
}

BudgetTable::Planned BudgetTable::planned(std::string_view tenant, msg::BudgetRevision revision,
                                          std::uint64_t now_ms) const {
  Planned planned;
  revision.number = newest(tenant) + 1;
  revision.set_unix_ms = now_ms;
  for (const msg::BudgetChange& change : revision.changes) {
    planned.rows.push_back({std::string(tenant), change.scope.model, change.after.recipe,
                            change.after.keep, revision.number, now_ms, change.after.limit,
                            change.scope.session});
  }
  planned.revision = std::move(revision);
  return planned;
}

Result<BudgetTable::Planned> BudgetTable::changed(std::string_view tenant,
                                                  const msg::SetBudget& request,
                                                  std::uint64_t now_ms) const {
  if (!request.recipe && !request.keep && !request.limit) {
    return Status::invalid("a change of the budget names neither a recipe nor a keep nor a limit");
  }
  PRECIS_TRY(check_newest(tenant, request.if_revision));
  if (request.recipe) PRECIS_TRY(check_recipe(*request.recipe));
  if (request.keep) PRECIS_TRY(check_keep(*request.keep));
  if (request.limit) {
    PRECIS_TRY(check_keep(*request.limit, "limit"));
    if (request.limit->kind == Budget::Kind::kQuality) {
      return Status::invalid(
          "a limit can't be a quality target; give a ratio, entries, bytes or a share of bytes");
    }
  }
  PRECIS_TRY(check_room(tenant, request.scope));
  msg::BudgetChange change{request.scope, values(tenant, request.scope), {}};
  change.after = change.before;
  if (request.recipe) change.after.recipe = *request.recipe;
  take(request.keep, change.after.keep);
  take(request.limit, change.after.limit);
  if (request.keep || request.limit) PRECIS_TRY(check_values(change.after, !request.limit));
  msg::BudgetRevision revision{0, 0, request.user, request.comment, {}, {}};
  if (change.after != change.before) revision.changes.push_back(std::move(change));
  return planned(tenant, std::move(revision), now_ms);
}

msg::Budgets BudgetTable::merged(std::string_view tenant, const msg::BudgetScope& scope,
                                 std::string_view model_name, const msg::BudgetRow& configured,
                                 const std::string& by_profile, const IsSession& is_session) const {
  const auto row_of = [](std::string name, const StoredBudget& row) {
    return msg::BudgetRow{std::move(name), row.recipe, row.keep,   row.version,
                          row.set_unix_ms, row.limit,  row.session};
  };
  const auto stored = [&](std::string name, const msg::BudgetScope& layer) {
    const StoredBudget* const row = find(tenant, layer);
    msg::BudgetRow told = row_of(std::move(name), row ? *row : StoredBudget());
    told.session = layer.session;
    return told;
  };
  msg::Budgets budgets;
  budgets.layers.push_back({"built-in", std::string(kBuiltInRecipe), kBuiltInKeep, 0, 0, {}, {}});
  budgets.layers.push_back(configured);
  budgets.layers.back().scope = "config";
  if (!by_profile.empty()) budgets.layers.push_back({"profile", by_profile, {}, 0, 0, {}, {}});
  budgets.layers.push_back(stored("global", {}));
  if (scope.model) {
    budgets.layers.push_back(stored("model " + std::string(model_name), {scope.model, {}}));
  }
  const auto session_name = [](const std::string& name) { return "session " + name; };
  if (!scope.session.empty()) {
    budgets.layers.push_back(stored(session_name(scope.session), {{}, scope.session}));
  }
  std::size_t bytes = 0;
  for (auto row = first_session(tenant);
       scope == msg::BudgetScope() && row != rows_.end() && row->first.first == tenant; ++row) {
    if (budgets.sessions.size() == kShownSessionBudgetsMax || bytes > kSessionRowsBytesMax) break;
    if (!is_session(row->second.session)) continue;
    budgets.sessions.push_back(row_of(session_name(row->second.session), row->second));
    bytes += row->second.recipe.size();
  }

  budgets.effective.scope = budgets.layers.back().scope;
  budgets.effective.session = scope.session;
  settle(budgets);
  return budgets;
}

}  // namespace precis
