#include "client/cli/budget_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "client/cli/budget_application.h"
#include "client/cli/budget_history.h"
#include "client/cli/budget_table.h"
#include "client/cli/files.h"
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

// A change, and the table of layers and heads that it sets.
struct Wanted {
  msg::SetBudget request;
  std::optional<BudgetTable> table;
  msg::ModelRow model;  // of the table
};

// Adds the profile of a table to the service, unless the change is a dry run, and names it in the
// request.
Status take_table(Client& client, const std::string& model, const BudgetChange& change,
                  Wanted& wanted) {
  TableParts parts = table_parts(change.layers, change.heads);
  if (!change.table.empty()) {
    PRECIS_ASSIGN(parts, read_table(change.table));
  }
  PRECIS_ASSIGN(wanted.model, find_model(client, model));
  const std::optional<Digest> scope =
      change.session.empty() ? std::optional(wanted.model.fingerprint) : std::nullopt;
  PRECIS_ASSIGN(const msg::Budgets budgets, client.budgets(scope, change.session));
  const std::string recipe = change.recipe.value_or(budgets.effective.recipe);
  PRECIS_ASSIGN(wanted.table, make_budget_table(wanted.model, recipe, parts));
  msg::SetBudget& request = wanted.request;
  if (!request.keep) request.keep = wanted.table->keep;
  // A change that is refused must leave no profile.
  msg::SetBudget tried = request;
  tried.recipe.reset();
  tried.dry_run = true;
  PRECIS_TRY(client.set_budget(tried).status());
  if (change.dry_run) {
    request.recipe.reset();
    return {};
  }
  PRECIS_TRY(client.add_profile(profile_json(wanted.table->profile)).status());
  request.recipe = canonical_recipe(wanted.table->recipe);
  return {};
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
    PRECIS_ASSIGN(const auto changes, set_after(context.client, *revision));
    if (context.json) {
      context.out += json_text(changes_json(context.client, changes));
    } else {
      context.out += changes.empty() ? "nothing was set\n"
                                     : changes_text(context.client, changes, context.columns());
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
  const auto limit = parse_keep(text);  // whose error offers a quality target, too
  if (limit.ok() && limit->kind != Budget::Kind::kQuality) return limit;
  return Status::invalid("--limit '" + text +
                         "': give a ratio in (0, 1] such as 0.3 or 30%, entries per head such as "
                         "'128 entries', bytes of a segment such as '64 MiB', or none");
}

// The change, with the profile of its table of layers and heads.
Result<Wanted> wanted_of(Client& client, const std::string& model, const BudgetChange& change) {
  Wanted wanted;
  msg::SetBudget& request = wanted.request;
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
  request.scope.session = change.session;
  if (change.session.empty()) {
    PRECIS_ASSIGN(request.scope.model, model_scope(client, model));
  }
  if (!change.session.empty()) PRECIS_TRY(find_session(client, change.session).status());
  if (!change.layers.empty() || !change.heads.empty() || !change.table.empty()) {
    PRECIS_TRY(take_table(client, model, change, wanted));
  }
  return wanted;
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

bool is_quality(const std::optional<Budget>& budget) {
  return budget && budget->kind == Budget::Kind::kQuality;
}

// The part of a recipe that decides in which order a head keeps its entries. The rest decides how
// many it keeps. Empty if this build can't read the recipe.
std::string order_of(Result<Recipe> recipe) {
  if (!recipe.ok()) return {};
  recipe->preset.clear();
  recipe->heads = HeadAllocator::kUniform;
  recipe->layers = LayerAllocator::kUniform;
  recipe->min_entries = 0;
  return canonical_recipe(*recipe);
}

// A part of what a dry run tells.
struct Told {
  Json json;
  std::string text;
};

// Tells what the next put with the table would keep of a segment like the model's newest. `limit`:
// in force then.
Result<Told> next_put(Client& client, const Wanted& wanted, const std::optional<Budget>& limit) {
  if (is_quality(wanted.request.keep)) return Told();
  const Recipe& recipe = wanted.table->recipe;
  if (recipe.protect_tail || recipe.skip_layers > 0) {  // table_counts() does not know these
    return Told{{}, "only a put can tell what this recipe keeps: it protects more tokens\n"};
  }
  PRECIS_ASSIGN(const auto newest, newest_segment(client, wanted.model.fingerprint));
  if (!newest) {
    return Told{{}, "the model has no stored segment: only a put can tell what it keeps\n"};
  }
  PRECIS_ASSIGN(const auto counts, table_counts(*wanted.table, wanted.model.model, *newest,
                                                *wanted.request.keep, limit));
  const auto would_keep = client.would_keep(newest->id, counts);
  const StatusCode code = would_keep.status().code();
  if (code == StatusCode::kNotFound || code == StatusCode::kCorruption) {
    return Told{{}, "the model's newest segment is out of service: only a put can tell\n"};
  }
  PRECIS_ASSIGN(const msg::Trimmed kept, would_keep);
  const std::uint32_t tokens = newest->end - newest->begin;
  Told told{{{"segment", newest->id.hex()},
             {"tokens", tokens},
             {"stored_bytes", kept.stored_bytes},
             {"kept_mass", kept.kept_mass}},
            {}};
  told.text = fmt::format("the next put like segment {} ({} tokens): {}", newest->id.hex(),
                          count_text(tokens), bytes_text(kept.stored_bytes));
  if (!kept.kept_mass.empty()) {
    told.text += fmt::format(", {}; by the stored scores of recipe {}",
                             kept_mass_words({kept.kept_mass.begin(), kept.kept_mass.end()}),
                             printable(recipe_text(*newest)));
  }
  told.text += "\n";
  std::uint64_t lacking = 0;
  for (std::size_t head = 0; head < std::min(counts.size(), newest->plan->counts.size()); ++head) {
    if (counts[head] > newest->plan->counts[head]) ++lacking;
  }
  if (lacking > 0) {
    told.text += fmt::format(
        "of {} the segment stores fewer entries than a put would keep: the put "
        "takes more bytes\n",
        counted(lacking, "head"));
  }
  if (order_of(parse_recipe(newest->recipe)) != order_of(wanted.table->recipe)) {
    told.text += "these scores are of the old recipe: only a put can tell those of the new one\n";
  }
  return told;
}

// A line for what no stored score tells of a change without a table; empty if there is no such
// thing.
std::string only_a_put_tells(const BudgetChange& change, const Wanted& wanted) {
  if (change.unset) {
    return "only a put can tell what it keeps without this setting: nothing stored is counted\n";
  }
  if (is_quality(wanted.request.keep)) {
    return "only a put can tell what a quality target keeps: the scores of the prompt decide\n";
  }
  if (!change.recipe || wanted.table) return {};
  return fmt::format(
      "only a put can tell what recipe {} keeps: what is stored has the scores of its own recipe\n",
      printable(*change.recipe));
}

}  // namespace

Status set_budget(Context context, const std::string& model, const BudgetChange& change) {
  PRECIS_ASSIGN(Wanted wanted, wanted_of(context.client, model, change));
  msg::SetBudget& request = wanted.request;
  // A dry run also counts what trims would do. The service counts nothing for a budget that no trim
  // can take.
  request.apply_to_stored = change.apply_to_stored || change.dry_run;
  PRECIS_ASSIGN(const msg::Budgets budgets, context.client.set_budget(request));
  if (change.apply_to_stored && budgets.application == 0) {  // only in a dry run, which tells it
    return Status::invalid(
        "--apply-to-stored trims to a --keep or a --limit that is a ratio, "
        "entries or bytes: give one, or leave it out");
  }
  std::string text =
      change.dry_run ? "the change is valid\n" : budgets_text(budgets, {}, context.columns());
  Json json = change.dry_run ? Json{{"dry_run", true}} : cli::to_json(budgets);
  if (!context.json) {
    const auto notes = limit_notes(context.client, request, budgets);
    if (notes.ok()) text += *notes;  // the change is made already, so an error would mislead
  }
  Status status;
  if (change.dry_run) text += only_a_put_tells(change, wanted);
  if (change.dry_run && wanted.table) {
    const auto next =
        next_put(context.client, wanted, request.limit ? request.limit : budgets.effective.limit);
    status = next.status();
    if (next.ok()) {
      json["next_put"] = next->json;
      text += next->text;
    }
  }
  if (budgets.application != 0) {
    const auto applied = wait_for_application(context.client, budgets.application);
    if (status.ok()) status = applied.ok() ? applied->status : applied.status();
    if (applied.ok()) {
      json["stored"] = applied->json;
      text += applied->text;
    }
  }
  context.out += context.json ? json_text(json) : text;
  return status;
}

}  // namespace precis::cli
