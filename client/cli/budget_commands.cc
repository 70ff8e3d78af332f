#include "client/cli/budget_commands.h"

#include <fmt/format.h>

#include <utility>

#include "client/cli/budget_application.h"
#include "client/cli/budget_history.h"
#include "client/cli/files.h"
#include "client/cli/find.h"
#include "client/cli/heatmap.h"
#include "client/cli/json.h"
#include "client/cli/render.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "precis/keep.h"
#include "precis/limits.h"
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

// The table of layers and heads in a change; empty for none. All errors are kInvalidArgument.
Result<std::string> table_of(const BudgetChange& change) {
  if (!change.table.empty()) {
    PRECIS_ASSIGN(std::string text, read_named(change.table, limits::kBudgetTableBytesMax));
    return text.empty() ? Status::invalid(change.table + " is empty") : Result(std::move(text));
  }
  if (change.layers.find('#') != change.layers.npos) {
    return Status::invalid("--layers '" + change.layers + "': a # is only for a file (--table)");
  }
  for (const std::string& head : change.heads) {
    if (head.find('.') != head.npos && head.find_first_of("#,") == head.npos) continue;
    return Status::invalid("--head '" + head + "' has no form such as 12.3=0.6: LAYER.HEAD=SHARE");
  }
  return fmt::format("{}{}{}", change.layers,
                     change.layers.empty() || change.heads.empty() ? "" : ",",
                     fmt::join(change.heads, ","));
}

// The newest segment of a model, with its plan, shows how its budget is shared among layers and
// heads.
Result<std::optional<msg::SegmentInfo>> newest_segment(Client& client, const Digest& model) {
  PRECIS_ASSIGN(const auto newest, client.segments(model, 1));
  if (newest.empty()) return std::optional<msg::SegmentInfo>();
  PRECIS_ASSIGN(msg::SegmentInfo info, client.segment(newest.front().id));
  if (!info.plan) return std::optional<msg::SegmentInfo>();
  return std::optional(std::move(info));
}

Status draw(Context context, const std::optional<Digest>& model, const std::string& file) {
  if (!model) return Status::invalid("--png draws a model's newest segment: give --model");
  PRECIS_ASSIGN(const auto newest, newest_segment(context.client, *model));
  if (!newest) return Status::not_found("the model has no stored segment to draw");
  return write_file(file, heatmap_png(*newest->plan, newest->end - newest->begin));
}

}  // namespace

Status show_budget(Context context, const std::string& model, const std::string& session,
                   std::optional<std::uint64_t> revision, const std::string& png) {
  PRECIS_ASSIGN(const auto scope, model_scope(context.client, model));
  if (!png.empty()) PRECIS_TRY(draw(context, scope, png));
  if (revision) {
    PRECIS_ASSIGN(const msg::BudgetChanges set, context.client.compare_budgets({{}, *revision}));
    if (context.json) {
      context.out += json_text(changes_json(context.client, set.changes));
    } else {
      context.out += set.changes.empty()
                         ? "nothing was set\n"
                         : changes_text(context.client, set.changes, context.columns());
    }
    return {};
  }
  if (!session.empty()) PRECIS_TRY(find_session(context.client, session).status());
  PRECIS_ASSIGN(const msg::Budgets budgets, context.client.budgets(scope, session));
  const bool is_of_all = !scope && session.empty();
  std::vector<ModelBudgets> models;
  if (is_of_all) {
    PRECIS_ASSIGN(models, apart(context.client, budgets));
  }
  if (!context.json) {
    context.out += budgets_text(budgets, models, context.columns());
    if (scope) {
      PRECIS_ASSIGN(const auto newest, newest_segment(context.client, *scope));
      if (newest) {
        context.out += "\nthe newest segment, " + newest->id.hex() + "\n" +
                       heatmap_text(*newest->plan, newest->end - newest->begin, context.columns());
      }
    }
    return {};
  }
  Json json = cli::to_json(budgets);
  if (is_of_all) json["models"] = rows_json(models);
  context.out += json_text(json);
  return {};
}

namespace {

// "none": the wider scope applies.
Result<Budget> parse_limit(const std::string& text) {
  if (text == "none") return Budget::all();
  const auto limit = parse_keep(text);  // whose error offers a loss, too
  if (limit.ok() && limit->kind != Budget::Kind::kLoss) return limit;
  return Status::invalid(
      "--limit '" + text +
      "': give a ratio in (0, 1] such as 0.3 or 30%, entries per head such as "
      "'128 entries', bytes of a segment such as '64 MiB', a share of them such as '10% "
      "bytes', or none");
}

Result<msg::SetBudget> request_of(Client& client, const std::string& model,
                                  const BudgetChange& change) {
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
    PRECIS_ASSIGN(request.keep, parse_keep(*change.keep, "--keep"));
  }
  if (change.limit) {
    PRECIS_ASSIGN(request.limit, parse_limit(*change.limit));
  }
  PRECIS_ASSIGN(request.table, table_of(change));
  request.scope.session = change.session;
  if (!change.session.empty()) {
    PRECIS_TRY(find_session(client, change.session).status());
  } else {
    PRECIS_ASSIGN(request.scope.model, model_scope(client, model));
  }
  return request;
}

// A line for each limit of another scope that lowers the keep of the change: that is no error,
// because the limit may be raised later, but puts get less than was set. `budgets`: of its scope.
Result<std::string> limit_notes(Client& client, const msg::SetBudget& request,
                                const msg::Budgets& budgets) {
  std::string notes;
  const std::optional<Budget>& keep = request.keep;
  const std::optional<Budget>& limit = budgets.effective.limit;
  if (!keep || keep->kind == Budget::Kind::kAll) return notes;
  const auto note = [&](const std::string& which, const Budget& lower) {
    notes += fmt::format("note: keep {} is above the limit {}{}: puts get at most that\n",
                         keep->to_string(), lower.to_string(), which);
  };
  if (!request.limit && limit && is_above(*keep, *limit)) note(" in force", *limit);
  if (request.scope.model || !request.scope.session.empty()) return notes;
  PRECIS_ASSIGN(const auto models, apart(client, budgets));
  for (const ModelBudgets& each : models) {
    const msg::BudgetRow& own = each.budgets.layers.back();
    if (!own.keep && own.limit && is_above(*keep, *own.limit)) {
      note(" of model " + printable(each.model.model.name), *own.limit);
    }
  }
  for (const msg::BudgetRow& own : budgets.sessions) {
    if (!own.keep && own.limit && is_above(*keep, *own.limit)) {
      note(" of " + printable(own.scope), *own.limit);
    }
  }
  return notes;
}

std::string next_put_text(const msg::NextPut& next) {
  std::string text;
  if (!next.segment.is_null()) {
    text = fmt::format("the next put like segment {} ({} tokens): keep {}, {}", next.segment.hex(),
                       count_text(next.tokens), next.keep.value_or(Budget::all()).to_string(),
                       bytes_text(next.stored_bytes));
    if (!next.kept_mass.empty()) {
      text += fmt::format(", {} by the stored scores",
                          kept_mass_words({next.kept_mass.begin(), next.kept_mass.end()}));
    }
    text += "\n";
  }
  return next.note.empty() ? text : text + printable(next.note) + "\n";
}

}  // namespace

Status set_budget(Context context, const std::string& model, const BudgetChange& change) {
  PRECIS_ASSIGN(msg::SetBudget request, request_of(context.client, model, change));
  // A dry run also counts what trims would do. The service counts nothing for a budget that no trim
  // can take.
  request.apply_to_stored = change.apply_to_stored || change.dry_run;
  PRECIS_ASSIGN(const msg::Budgets budgets, context.client.set_budget(request));
  if (change.apply_to_stored && budgets.application == 0) {  // possible only in a dry run
    return Status::invalid(
        "--apply-to-stored trims to a --keep or a --limit that is a ratio, "
        "entries or bytes: give one, or leave it out");
  }
  std::string text =
      change.dry_run ? "the change is valid\n" : budgets_text(budgets, {}, context.columns());
  Json json = cli::to_json(budgets);
  if (change.dry_run) json = {{"dry_run", true}, {"next_put", json["next_put"]}};
  if (!context.json) {
    const auto notes = limit_notes(context.client, request, budgets);
    if (notes.ok()) text += *notes;  // the change is made already, so an error would mislead
    if (budgets.next_put) text += next_put_text(*budgets.next_put);
  }
  Status status;
  if (budgets.application != 0) {
    const auto applied = wait_for_application(context.client, budgets.application);
    status = applied.ok() ? applied->status : applied.status();
    if (applied.ok()) {
      json["stored"] = applied->json;
      text += applied->text;
    }
  }
  context.out += context.json ? json_text(json) : text;
  return status;
}

}  // namespace precis::cli
