#include "cachesvc/catalog/budgets.h"

#include <algorithm>
#include <set>

#include "precis/keep.h"
#include "precis/limits.h"
#include "precis/recipe.h"

namespace precis {
namespace {

constexpr std::size_t kSessionRowsBytesMax = 256 << 10;
constexpr std::size_t kComparedBytesMax = 1 << 20;
// The scopes of the layers that no request sets.
constexpr std::string_view kBuiltIn = "built-in", kConfig = "config", kProfile = "profile";

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

// Only what can be compared without a segment.
bool is_above(const Budget& keep, const Budget& limit) {
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

bool recipe_is_set(const msg::Budgets& budgets) {
  return std::ranges::any_of(budgets.layers, [](const msg::BudgetRow& layer) {
    const bool by_request =
        layer.scope != kBuiltIn && layer.scope != kConfig && layer.scope != kProfile;
    return by_request && !layer.recipe.empty();
  });
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
  keys.revisions = kept(tenant).numbers();
  return keys;
}

void BudgetTable::put(std::string_view tenant, msg::BudgetRevision revision) {
  revisions_[std::string(tenant)].put(std::move(revision));
}

void BudgetTable::erase(std::string_view tenant, std::uint64_t revision) {
  const auto kept = revisions_.find(tenant);
  if (kept == revisions_.end()) return;
  kept->second.erase(revision);
  if (kept->second.empty()) revisions_.erase(kept);
}

const KeptRevisions& BudgetTable::kept(std::string_view tenant) const {
  static const KeptRevisions kNone;
  const auto kept = revisions_.find(tenant);
  return kept == revisions_.end() ? kNone : kept->second;
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

// All rows of a tenant share one sequence, so that a revision identifies the whole state. Rows of
// an earlier build, none of which is a session's, have versions without a revision.
std::uint64_t BudgetTable::newest(std::string_view tenant) const {
  std::uint64_t newest = 0;
  const auto sessions = first_session(tenant);
  for (auto row = rows_.lower_bound({std::string(tenant), {}}); row != sessions; ++row) {
    newest = std::max(newest, row->second.version);
  }
  return std::max(newest, kept(tenant).newest());
}

Status BudgetTable::check_newest(std::string_view tenant,
                                 std::optional<std::uint64_t> expected) const {
  const std::uint64_t is = newest(tenant);
  if (!expected || *expected == is) return {};
  return Status::conflict("the budgets are at revision " + std::to_string(is) + ", not " +
                          std::to_string(*expected) +
                          ": somebody else has changed them; see `precisctl budget log`");
}

Status BudgetTable::check_kept(std::string_view tenant, std::uint64_t revision) const {
  const std::uint64_t is = newest(tenant);
  if (revision > is) {
    return Status::not_found("there is no revision " + std::to_string(revision) +
                             "; the newest is " + std::to_string(is));
  }
  if (kept(tenant).count_after(revision) == is - revision) return {};
  return Status::not_found("not all revisions after " + std::to_string(revision) +
                           " are kept any more; see `precisctl budget log`");
}

KeptRevisions::Values BudgetTable::values_after(std::string_view tenant,
                                                std::uint64_t revision) const {
  return kept(tenant).values_after(
      revision, [&](const msg::BudgetScope& scope) { return values(tenant, scope); });
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
  if (request.limit) PRECIS_TRY(check_reader_keep(*request.limit, "limit"));
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

Result<BudgetTable::Planned> BudgetTable::rolled_back(std::string_view tenant,
                                                      const msg::RollBackBudget& request,
                                                      std::uint64_t now_ms,
                                                      const IsScope& is_scope) const {
  PRECIS_TRY(check_newest(tenant, request.if_revision));
  const std::uint64_t is = newest(tenant);
  PRECIS_TRY(check_kept(tenant, request.revision));
  if (request.revision == is) {
    return Status::conflict("the budgets are at revision " + std::to_string(is) +
                            "; roll back to an earlier one");
  }
  msg::BudgetRevision revision{0, 0, request.user, request.comment, request.revision, {}};
  for (auto& [key, was] : values_after(tenant, request.revision)) {
    const msg::BudgetScope scope = scope_of(key);
    if (!is_scope(scope)) continue;
    msg::BudgetValues now = values(tenant, scope);
    if (now != was) revision.changes.push_back({scope, std::move(now), std::move(was)});
  }
  return planned(tenant, std::move(revision), now_ms);
}

Result<msg::BudgetChanges> BudgetTable::compared(std::string_view tenant,
                                                 const msg::CompareBudgets& which,
                                                 const IsScope& is_scope) const {
  msg::BudgetChanges told{which.from, which.to.value_or(newest(tenant)), {}};
  PRECIS_TRY(check_kept(tenant, std::max(which.from.value_or(0), told.to)));
  PRECIS_TRY(check_kept(tenant, std::min(which.from.value_or(told.to), told.to)));
  std::size_t bytes = 0;
  const auto add = [&](msg::BudgetChange change) -> Status {
    if (change.before == change.after) return {};
    bytes += change.before.recipe.size() + change.after.recipe.size();
    if (told.changes.size() == limits::kListPageRowsMax || bytes > kComparedBytesMax) {
      return Status::out_of_space("more scopes differ than an answer holds, which are " +
                                  std::to_string(limits::kListPageRowsMax) +
                                  "; compare two revisions (`from` and `to`) that are close to "
                                  "each other");
    }
    told.changes.push_back(std::move(change));
    return {};
  };
  if (!which.from) {
    const auto changed_later = values_after(tenant, told.to);
    std::set<ScopeKey> scopes;
    for (const auto& [key, was] : changed_later) scopes.insert(key);
    for (const msg::BudgetScope& scope : keys(tenant).scopes) scopes.insert(key_of(scope));
    for (const ScopeKey& key : scopes) {
      const msg::BudgetScope scope = scope_of(key);
      const auto was = changed_later.find(key);
      if (!is_scope(scope)) continue;
      PRECIS_TRY(
          add({scope, {}, was == changed_later.end() ? values(tenant, scope) : was->second}));
    }
    return told;
  }
  const auto [first, last] = std::minmax({*which.from, told.to});
  for (auto& [key, change] : kept(tenant).changes(first, last)) {
    if (*which.from > told.to) std::swap(change.before, change.after);
    PRECIS_TRY(add(std::move(change)));
  }
  return told;
}

msg::BudgetRevisions BudgetTable::revisions(std::string_view tenant,
                                            const msg::ListBudgetRevisions& request) const {
  msg::BudgetRevisions page = kept(tenant).page(request);
  page.newest = newest(tenant);
  return page;
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
  budgets.layers.push_back(
      {std::string(kBuiltIn), std::string(kBuiltInRecipe), kBuiltInKeep, 0, 0, {}, {}});
  budgets.layers.push_back(configured);
  budgets.layers.back().scope = kConfig;
  if (!by_profile.empty()) {
    budgets.layers.push_back({std::string(kProfile), by_profile, {}, 0, 0, {}, {}});
  }
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
