// precisctl budget log, diff and rollback.
#include "client/cli/budget_history.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "client/cli/budget_application.h"
#include "client/cli/budget_commands.h"
#include "client/cli/find.h"
#include "client/cli/render.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"

namespace precis::cli {
namespace {

std::string scope_name(Client& client, const msg::BudgetScope& scope) {
  if (!scope.session.empty()) return "session " + scope.session;
  if (!scope.model) return "global";
  const auto model = find_model(client, scope.model->hex());
  return "model " + (model.ok() ? model->model.name : scope.model->hex());
}

std::string values_text(const msg::BudgetValues& values) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    text += (text.empty() ? "" : ", ") + name + " " + value;
  };
  if (!values.recipe.empty()) add("recipe", recipe_words(values.recipe));
  if (values.keep) add("keep", values.keep->to_string());
  if (values.limit) add("limit", values.limit->to_string());
  return text.empty() ? "nothing set" : text;
}

Json to_json(const msg::BudgetValues& values) {
  return {{"recipe", values.recipe.empty() ? Json() : Json(values.recipe)},
          {"keep", cli::to_json(values.keep)},
          {"limit", cli::to_json(values.limit)}};
}

}  // namespace

std::string changes_text(Client& client, const std::vector<msg::BudgetChange>& changes,
                         std::size_t columns) {
  if (changes.empty()) return "nothing differs\n";
  Table table({{"SCOPE", false, 0, 12}, {"BEFORE", false, 0, 16}, {"AFTER", false, 0, 16}});
  for (const msg::BudgetChange& change : changes) {
    table.add(
        {scope_name(client, change.scope), values_text(change.before), values_text(change.after)});
  }
  return table.text(columns);
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

namespace {

Json to_json(Client& client, const msg::BudgetRevision& revision) {
  return {{"number", revision.number},
          {"set_unix_ms", revision.set_unix_ms},
          {"user", revision.user},
          {"comment", revision.comment},
          {"rollback_to", revision.rollback_to ? Json(*revision.rollback_to) : Json()},
          {"changes", changes_json(client, revision.changes)}};
}

}  // namespace

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
  Table table({{"REVISION", true},
               {"SET", false, 1},
               {"USER", false, 2, 8},
               {"SCOPE", false, 0, 12},
               {"BEFORE", false, 0, 12},
               {"AFTER", false, 0, 12},
               {"COMMENT", false, 3, 12}});
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
  PRECIS_ASSIGN(const msg::BudgetChanges told, context.client.compare_budgets({from, to}));
  context.out += context.json ? json_text(changes_json(context.client, told.changes))
                              : changes_text(context.client, told.changes, context.columns());
  return {};
}

Status roll_back_budget(Context context, std::uint64_t revision, const BudgetChange& how) {
  const std::string comment =
      how.comment.empty() ? "rollback to " + std::to_string(revision) : how.comment;
  const msg::RollBackBudget request{
      revision,        how.user,    comment,
      how.if_revision, how.dry_run, /*apply_to_stored=*/how.dry_run || how.apply_to_stored};
  PRECIS_ASSIGN(const msg::BudgetRevision made, context.client.roll_back_budget(request));
  Json json = to_json(context.client, made);
  json["dry_run"] = how.dry_run;
  std::string text = changes_text(context.client, made.changes, context.columns());
  if (!how.dry_run && !made.changes.empty()) {
    text += fmt::format("revision {} restores revision {}\n", made.number, revision);
  }
  Status trimmed;
  if (made.application != 0) {
    const auto applied = wait_for_application(context.client, made.application);
    trimmed = applied.ok() ? applied->status : applied.status();
    if (applied.ok()) {
      json["stored"] = applied->json;
      text += applied->text;
    }
    if (!how.dry_run && !trimmed.ok()) {
      // A second rollback changes nothing, so it would not trim the rest.
      text +=
          "for segments that were not trimmed: precisctl budget set --keep ... --apply-to-stored\n";
    }
  }
  context.out += context.json ? json_text(json) : text;
  return trimmed;
}

}  // namespace precis::cli
