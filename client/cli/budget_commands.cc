#include "client/cli/budget_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "client/cli/budget_table.h"
#include "client/cli/bulk.h"
#include "client/cli/find.h"
#include "client/cli/heatmap.h"
#include "client/cli/json.h"
#include "client/cli/render.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "precis/keep.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

// The budgets of models for which another budget is in force than the default. They are listed
// because the user could not know otherwise that they exist.
Result<std::vector<ModelBudgets>> apart(Client& client, const msg::Budgets& all) {
  PRECIS_ASSIGN(const auto models, client.models());
  std::vector<ModelBudgets> apart;
  for (const msg::ModelRow& model : models) {
    PRECIS_ASSIGN(msg::Budgets budgets, client.budgets(model.fingerprint));
    const msg::BudgetRow &one = budgets.effective, &others = all.effective;
    if (one.recipe == others.recipe && one.keep == others.keep && one.limit == others.limit) {
      continue;
    }
    apart.push_back({model, std::move(budgets)});
  }
  return apart;
}

// The segments of the models whose puts get another budget by the change: of one model, or of all
// that have no budget of their own.
Result<Chosen> chosen_by(Client& client, const std::optional<Digest>& scope) {
  PRECIS_ASSIGN(const auto models, client.models());
  Chosen chosen;
  for (const msg::ModelRow& model : models) {
    if (scope && model.fingerprint != *scope) continue;
    PRECIS_ASSIGN(const msg::Budgets budgets, client.budgets(model.fingerprint));
    if (!scope && budgets.layers.back().keep) continue;
    SegmentFilter filter;
    filter.model = model.fingerprint.hex();
    PRECIS_ASSIGN(const Chosen some, choose(client, filter));
    chosen.segments.insert(chosen.segments.end(), some.segments.begin(), some.segments.end());
    chosen.stored_bytes += some.stored_bytes;
    chosen.more = chosen.more || some.more;
  }
  return chosen;
}

// Adds the profile of a table to the service, unless the change is a dry run, and names it in the
// request.
Status take_table(Client& client, const std::string& model, const BudgetChange& change,
                  msg::SetBudget& request) {
  if (model.empty()) {
    return Status::invalid("a table of layers and heads is for one model: give --model");
  }
  PRECIS_ASSIGN(const msg::ModelRow row, find_model(client, model));
  PRECIS_ASSIGN(const msg::Budgets budgets, client.budgets(row.fingerprint));
  const std::string recipe = change.recipe.value_or(budgets.effective.recipe);
  PRECIS_ASSIGN(const BudgetTable table,
                make_budget_table(row, recipe, change.layers, change.heads));
  if (!request.keep) request.keep = table.keep;
  // A change that is refused must leave no profile.
  msg::SetBudget tried = request;
  tried.recipe.reset();
  tried.dry_run = true;
  PRECIS_TRY(client.set_budget(tried).status());
  if (change.dry_run) {
    request.recipe.reset();
    return {};
  }
  PRECIS_TRY(client.add_profile(profile_json(table.profile)).status());
  request.recipe = table.recipe;
  return {};
}

std::string scope_name(Client& client, const msg::BudgetScope& scope) {
  if (!scope.model) return "global";
  const auto model = find_model(client, scope.model->hex());
  return "model " + (model.ok() ? model->model.name : scope.model->hex());
}

std::string values_text(const msg::BudgetValues& values) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    text += (text.empty() ? "" : ", ") + name + " " + value;
  };
  if (!values.recipe.empty()) add("recipe", values.recipe);
  if (values.keep) add("keep", values.keep->to_string());
  if (values.limit) add("limit", values.limit->to_string());
  return text.empty() ? "nothing set" : text;
}

std::string changes_text(Client& client, const std::vector<msg::BudgetChange>& changes) {
  if (changes.empty()) return "nothing differs\n";
  Table table({{"SCOPE"}, {"BEFORE"}, {"AFTER"}});
  for (const msg::BudgetChange& change : changes) {
    table.add(
        {scope_name(client, change.scope), values_text(change.before), values_text(change.after)});
  }
  return table.text();
}

Json to_json(const msg::BudgetValues& values) {
  return {{"recipe", values.recipe.empty() ? Json() : Json(values.recipe)},
          {"keep", cli::to_json(values.keep)},
          {"limit", cli::to_json(values.limit)}};
}

Json changes_json(Client& client, const std::vector<msg::BudgetChange>& changes) {
  Json list = Json::array();
  for (const msg::BudgetChange& change : changes) {
    list.push_back({{"scope", scope_name(client, change.scope)},
                    {"before", to_json(change.before)},
                    {"after", to_json(change.after)}});
  }
  return list;
}

Json to_json(Client& client, const msg::BudgetRevision& revision) {
  return {{"number", revision.number},
          {"set_unix_ms", revision.set_unix_ms},
          {"user", revision.user},
          {"comment", revision.comment},
          {"rollback_to", revision.rollback_to},
          {"changes", changes_json(client, revision.changes)}};
}

// All revisions above `number`, the newest first.
Result<msg::BudgetRevisions> revisions_above(Client& client, std::uint64_t number) {
  msg::BudgetRevisions all;
  for (std::uint64_t before = 0;;) {
    PRECIS_ASSIGN(msg::BudgetRevisions page, client.budget_revisions({before, 100}));
    all.newest = page.newest;
    all.oldest = page.oldest;
    for (msg::BudgetRevision& row : page.rows) {
      if (row.number <= number) return all;
      before = row.number;
      all.rows.push_back(std::move(row));
    }
    if (page.rows.empty() || before <= page.oldest) return all;
  }
}

Status check_kept(const msg::BudgetRevisions& above, std::uint64_t number, std::uint64_t last) {
  if (last > above.newest) {
    return Status::not_found("there is no revision " + std::to_string(last) + "; the newest is " +
                             std::to_string(above.newest));
  }
  if (above.rows.size() == above.newest - number) return {};
  return Status::not_found("not all revisions after " + std::to_string(number) +
                           " are kept any more; the oldest is " + std::to_string(above.oldest));
}

// The scopes that are set differently after revision `to` than after `from`.
Result<std::vector<msg::BudgetChange>> between(Client& client, std::uint64_t from,
                                               std::uint64_t to) {
  PRECIS_ASSIGN(const msg::BudgetRevisions above, revisions_above(client, std::min(from, to)));
  PRECIS_TRY(check_kept(above, std::min(from, to), std::max(from, to)));
  std::map<std::optional<Digest>, msg::BudgetChange> by_scope;
  for (auto revision = above.rows.rbegin(); revision != above.rows.rend(); ++revision) {
    if (revision->number > std::max(from, to)) break;
    for (const msg::BudgetChange& change : revision->changes) {
      const auto [known, is_new] = by_scope.try_emplace(change.scope.model, change);
      if (!is_new) known->second.after = change.after;
    }
  }
  std::vector<msg::BudgetChange> changes;
  for (auto& [model, change] : by_scope) {
    if (change.before == change.after) continue;
    if (from > to) std::swap(change.before, change.after);
    changes.push_back(std::move(change));
  }
  return changes;
}

// Everything that was set after a revision: the present values, with the later changes undone.
Result<std::vector<msg::BudgetChange>> set_after(Client& client, std::uint64_t revision) {
  std::map<std::optional<Digest>, msg::BudgetChange> by_scope;
  PRECIS_ASSIGN(const auto models, client.models());
  std::vector<std::optional<Digest>> scopes{std::nullopt};
  for (const msg::ModelRow& model : models) scopes.emplace_back(model.fingerprint);
  for (const std::optional<Digest>& scope : scopes) {
    PRECIS_ASSIGN(const msg::Budgets budgets, client.budgets(scope));
    const msg::BudgetRow& own = budgets.layers.back();
    by_scope[scope] = {{scope}, {}, {own.recipe, own.keep, own.limit}};
  }
  PRECIS_ASSIGN(const msg::BudgetRevisions above, revisions_above(client, revision));
  PRECIS_TRY(check_kept(above, revision, revision));
  for (const msg::BudgetRevision& later : above.rows) {
    for (const msg::BudgetChange& change : later.changes) {
      by_scope[change.scope.model] = {change.scope, {}, change.before};
    }
  }
  std::vector<msg::BudgetChange> changes;
  for (auto& [model, change] : by_scope) {
    if (change.after != msg::BudgetValues{}) changes.push_back(std::move(change));
  }
  return changes;
}

// The newest segment of a model shows how its budget is shared among layers and heads.
Result<std::string> newest_plan(Context context, const Digest& model) {
  PRECIS_ASSIGN(const auto newest, context.client.segments(model, 1));
  if (newest.empty()) return std::string();
  PRECIS_ASSIGN(const msg::SegmentInfo info, context.client.segment(newest.front().id));
  if (!info.plan) return std::string();
  return "\nthe newest segment, " + info.id.hex() + "\n" +
         heatmap_text(*info.plan, info.end - info.begin, context.columns());
}

}  // namespace

Status show_budget(Context context, const std::string& model,
                   std::optional<std::uint64_t> revision) {
  PRECIS_ASSIGN(const auto scope, model_scope(context.client, model));
  if (revision) {
    PRECIS_ASSIGN(const auto changes, set_after(context.client, *revision));
    context.out += context.json ? json_text(changes_json(context.client, changes))
                                : changes_text(context.client, changes);
    return {};
  }
  PRECIS_ASSIGN(const msg::Budgets budgets, context.client.budgets(scope));
  std::vector<ModelBudgets> models;
  if (!scope) {
    PRECIS_ASSIGN(models, apart(context.client, budgets));
  }
  if (!context.json) {
    context.out += budgets_text(budgets, models);
    if (scope) {
      PRECIS_ASSIGN(const std::string plan, newest_plan(context, *scope));
      context.out += plan;
    }
    return {};
  }
  Json json = cli::to_json(budgets);
  if (!scope) json["models"] = rows_json(models);
  context.out += json_text(json);
  return {};
}

Status set_budget(Context context, const std::string& model, const BudgetChange& change) {
  msg::SetBudget request;
  request.user = change.user;
  request.comment = change.comment;
  request.if_revision = change.if_revision;
  request.dry_run = change.dry_run;
  if (change.unset) {
    request.recipe = "";
    request.keep = request.limit = Budget::all();
  }
  if (change.recipe) request.recipe = change.recipe;
  if (change.keep) {
    PRECIS_ASSIGN(request.keep, parse_keep(*change.keep));
  }
  if (change.limit) {
    PRECIS_ASSIGN(request.limit, parse_keep(*change.limit));
  }
  PRECIS_ASSIGN(request.scope.model, model_scope(context.client, model));
  if (!change.layers.empty() || !change.heads.empty()) {
    PRECIS_TRY(take_table(context.client, model, change, request));
  }
  const bool on_stored = change.dry_run || change.apply_to_stored;
  const bool has_cut = request.keep && request.keep->kind != Budget::Kind::kAll &&
                       request.keep->kind != Budget::Kind::kQuality;
  if (change.apply_to_stored && !has_cut) {
    return Status::invalid("--apply-to-stored needs a --keep that is a ratio, entries or bytes");
  }
  PRECIS_ASSIGN(const msg::Budgets budgets, context.client.set_budget(request));
  if (!on_stored || !has_cut) {
    if (change.dry_run) {
      context.out += context.json ? json_text(Json{{"dry_run", true}}) : "the change is valid\n";
      return {};
    }
    context.out += context.json ? json_text(cli::to_json(budgets)) : budgets_text(budgets, {});
    return {};
  }
  if (!context.json && !change.dry_run) context.out += budgets_text(budgets, {});
  catch_interrupts();
  PRECIS_ASSIGN(const Chosen chosen, chosen_by(context.client, request.scope.model));
  PrefixTrim how;
  how.keep = request.keep->to_string();
  how.dry_run = change.dry_run;
  const Status trimmed = trim_chosen(context, chosen, *request.keep, Durability::kWal, how);
  // A segment that stores less than the budget is not a failure.
  return trimmed.code() == StatusCode::kConflict ? Status() : trimmed;
}

Status list_revisions(Context context, std::uint32_t limit) {
  PRECIS_ASSIGN(const msg::BudgetRevisions page, context.client.budget_revisions({0, limit}));
  if (context.json) {
    Json list = Json::array();
    for (const msg::BudgetRevision& row : page.rows) {
      list.push_back(to_json(context.client, row));
    }
    context.out += json_text({{"newest", page.newest}, {"revisions", std::move(list)}});
    return {};
  }
  if (page.rows.empty()) context.out += "no revisions\n";
  Table table(
      {{"REVISION", true}, {"SET"}, {"USER"}, {"SCOPE"}, {"BEFORE"}, {"AFTER"}, {"COMMENT"}});
  for (const msg::BudgetRevision& row : page.rows) {
    for (const msg::BudgetChange& change : row.changes) {
      table.add({std::to_string(row.number), when_text(row.set_unix_ms), row.user,
                 scope_name(context.client, change.scope), values_text(change.before),
                 values_text(change.after), row.comment});
    }
  }
  if (!page.rows.empty()) context.out += table.text(context.columns());
  return {};
}

Status diff_revisions(Context context, std::uint64_t from, std::optional<std::uint64_t> to) {
  if (!to) {
    PRECIS_ASSIGN(const msg::BudgetRevisions page, context.client.budget_revisions({0, 1}));
    to = page.newest;
  }
  PRECIS_ASSIGN(const auto changes, between(context.client, from, *to));
  context.out += context.json ? json_text(changes_json(context.client, changes))
                              : changes_text(context.client, changes);
  return {};
}

Status roll_back_budget(Context context, std::uint64_t revision, const BudgetChange& how) {
  const std::string comment =
      how.comment.empty() ? "rollback to " + std::to_string(revision) : how.comment;
  msg::RollBackBudget request{revision, how.user, comment, how.if_revision, how.dry_run};
  PRECIS_ASSIGN(const msg::BudgetRevision made, context.client.roll_back_budget(request));
  if (context.json) {
    Json json = to_json(context.client, made);
    json["dry_run"] = how.dry_run;
    context.out += json_text(json);
    return {};
  }
  context.out += changes_text(context.client, made.changes);
  if (!how.dry_run && !made.changes.empty()) {
    context.out += fmt::format("revision {} restores revision {}\n", made.number, revision);
  }
  return {};
}

}  // namespace precis::cli
