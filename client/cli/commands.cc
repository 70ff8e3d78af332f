#include "client/cli/commands.h"

#include <fmt/format.h>

#include <vector>

#include "client/cli/files.h"
#include "client/cli/find.h"
#include "client/cli/json.h"
#include "client/cli/render.h"
#include "client/cli/table.h"

namespace precis::cli {
namespace {

void print(const Json& json) {
  // Names need not be UTF-8: what is not is replaced, never a reason to fail.
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}
void print(const std::string& text) { fmt::print("{}", text); }

// `model` as the command line has it; empty for none.
Result<std::optional<Digest>> model_scope(Client& client, const std::string& model) {
  if (model.empty()) return std::optional<Digest>();
  PRECIS_ASSIGN(const msg::ModelRow row, find_model(client, model));
  return std::optional(row.fingerprint);
}

void print_budgets(const Context& context, const msg::Budgets& budgets) {
  if (context.json) return print(to_json(budgets));
  print(budgets_text(budgets));
}

}  // namespace

Status show_status(Context context) {
  PRECIS_ASSIGN(const msg::ServerStatus status, context.client.status());
  if (context.json) {
    print(to_json(status));
  } else {
    print(status_text(status));
  }
  return {};
}

Status list_models(Context context) {
  PRECIS_ASSIGN(const auto rows, context.client.models());
  if (context.json) {
    print(Json{{"models", rows_json(rows)}});
  } else {
    print(models_text(rows));
  }
  return {};
}

Status list_prefixes(Context context, const std::string& model, std::uint32_t limit) {
  PRECIS_ASSIGN(const auto scope, model_scope(context.client, model));
  PRECIS_ASSIGN(const auto rows, context.client.segments(scope, limit));
  if (context.json) {
    print(Json{{"prefixes", rows_json(rows)}});
    return {};
  }
  PRECIS_ASSIGN(const auto models, context.client.models());
  print(segments_text(rows, models));
  if (rows.size() == limit) print(fmt::format("only the first {}: see --limit\n", limit));
  return {};
}

Status show_prefix(Context context, const std::string& id) {
  PRECIS_ASSIGN(const SegmentId segment, find_segment(context.client, id));
  PRECIS_ASSIGN(const msg::SegmentInfo row, context.client.segment(segment));
  if (context.json) {
    print(to_json(row));
    return {};
  }
  PRECIS_ASSIGN(const auto models, context.client.models());
  print(segment_text(row, models));
  return {};
}

Status remove_prefix(Context context, const std::string& id, bool recursive) {
  PRECIS_ASSIGN(const SegmentId segment, find_segment(context.client, id));
  PRECIS_ASSIGN(const msg::Removed removed, context.client.remove_segment(segment, recursive));
  if (context.json) {
    print(to_json(removed));
  } else {
    print(fmt::format("removed {} segment{}, {}\n", removed.segments,
                      removed.segments == 1 ? "" : "s", bytes_text(removed.bytes)));
  }
  return {};
}

Status list_sessions(Context context) {
  PRECIS_ASSIGN(const auto rows, context.client.sessions());
  if (context.json) {
    print(Json{{"sessions", rows_json(rows)}});
  } else {
    print(sessions_text(rows));
  }
  return {};
}

Status show_session(Context context, const std::string& name) {
  PRECIS_ASSIGN(const msg::SessionRow row, context.client.session(name));
  if (context.json) {
    print(to_json(row));
  } else {
    print(session_text(row));
  }
  return {};
}

Status remove_session(Context context, const std::string& name) {
  PRECIS_TRY(context.client.remove_session(name));
  if (context.json) {
    print(Json{{"removed", name}});
  } else {
    print(fmt::format("removed session {}\n", printable(name)));
  }
  return {};
}

Status show_budget(Context context, const std::string& model) {
  PRECIS_ASSIGN(const auto scope, model_scope(context.client, model));
  PRECIS_ASSIGN(const msg::Budgets budgets, context.client.budgets(scope));
  print_budgets(context, budgets);
  return {};
}

Status set_budget(Context context, const std::string& model, const BudgetChange& change) {
  msg::SetBudget request;
  if (change.unset) {
    request.recipe = "";
    request.keep = Budget::all();
  }
  if (change.recipe) request.recipe = change.recipe;
  if (change.keep) {
    PRECIS_ASSIGN(request.keep, parse_keep(*change.keep));
  }
  PRECIS_ASSIGN(request.scope.model, model_scope(context.client, model));
  PRECIS_ASSIGN(const msg::Budgets budgets, context.client.set_budget(request));
  print_budgets(context, budgets);
  return {};
}

Status add_profile(Context context, const std::string& file, const std::string& model) {
  PRECIS_ASSIGN(std::string json, read_file(file));
  PRECIS_ASSIGN(const auto scope, model_scope(context.client, model));
  if (scope) {
    Json profile = parse_json(json);
    if (!profile.is_object()) return Status::invalid(file + ": not a JSON object");
    profile["model"] = scope->hex();
    json = profile.dump();
  }
  auto added = context.client.add_profile(json);
  PRECIS_TRY(added.status().with_context(file));
  if (context.json) {
    print(to_json(*added));
    return {};
  }
  PRECIS_ASSIGN(const auto models, context.client.models());
  print(profile_text(*added, models));
  return {};
}

Status list_profiles(Context context, const std::string& model) {
  PRECIS_ASSIGN(const auto scope, model_scope(context.client, model));
  PRECIS_ASSIGN(const auto rows, context.client.profiles(scope));
  if (context.json) {
    print(Json{{"profiles", rows_json(rows)}});
    return {};
  }
  PRECIS_ASSIGN(const auto models, context.client.models());
  print(profiles_text(rows, models));
  return {};
}

Status show_profile(Context context, const std::string& model, const std::string& name,
                    const std::string& out) {
  PRECIS_ASSIGN(const Digest fingerprint, find_profile_model(context.client, model, name));
  PRECIS_ASSIGN(const msg::ProfileRow row, context.client.profile(fingerprint, name));
  if (!out.empty()) PRECIS_TRY(write_file(out, row.json + "\n"));
  if (context.json) {
    print(to_json(row));
    return {};
  }
  PRECIS_ASSIGN(const auto models, context.client.models());
  print(profile_text(row, models));
  return {};
}

Status remove_profile(Context context, const std::string& model, const std::string& name) {
  PRECIS_ASSIGN(const Digest fingerprint, find_profile_model(context.client, model, name));
  PRECIS_TRY(context.client.remove_profile(fingerprint, name));
  if (context.json) {
    print(Json{{"removed", name}});
  } else {
    print(fmt::format("removed profile {}; what was stored by it stays\n", printable(name)));
  }
  return {};
}

Status show_stats(Context context) {
  PRECIS_ASSIGN(const msg::Stats stats, context.client.stats());
  if (context.json) {
    print(to_json(stats));
  } else {
    print(stats_text(stats));
  }
  return {};
}

}  // namespace precis::cli
