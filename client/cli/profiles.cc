// precisctl profile: scorers and budgets per head that were learnt offline.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/files.h"
#include "client/cli/find.h"
#include "client/cli/json.h"
#include "client/cli/render.h"
#include "client/cli/table.h"
#include "precis/limits.h"
#include "precis/printable.h"
#include "precis/profile.h"

namespace precis::cli {
namespace {

// The recipe of puts that name none; empty if that is unknown.
std::string recipe_in_force(Client& client, const Digest& model) {
  const auto budgets = client.budgets(model);
  return budgets.ok() ? budgets->effective.recipe : std::string();
}

Digest model_of(const Json& profile) {
  const auto named = profile.find("model");
  if (named == profile.end() || !named->is_string()) return {};
  const auto digest = parse_digest(named->get<std::string>());
  return digest.ok() ? *digest : Digest{};
}

// The share of its entries that each head keeps when all heads together keep a fifth of theirs; for
// a profile of weights, each head's weight in units of the mean. Empty for a probe, whose
// coefficients say nothing to people.
std::string table_text(const std::string& json, std::size_t columns) {
  constexpr std::uint32_t kPruned = 80;  // percent
  const auto profile = parse_profile(json);
  if (!profile.ok() || profile->kind == Profile::Kind::kProbe) return {};
  const bool curves = profile->kind == Profile::Kind::kCurves;
  double sum = 0;
  for (const float value : profile->table) sum += value;
  const double mean = sum / static_cast<double>(std::max<std::size_t>(profile->table.size(), 1));
  std::vector<Column> heads{{"LAYER", true}};
  for (std::uint32_t h = 0; h < profile->num_kv_heads; ++h) {
    heads.push_back({"H" + std::to_string(h), true});
  }
  Table table(std::move(heads));
  for (std::uint32_t l = 0; l < profile->num_layers; ++l) {
    std::vector<std::string> cells{std::to_string(l)};
    for (std::uint32_t h = 0; h < profile->num_kv_heads; ++h) {
      const double value = profile->at(curves ? kPruned - 1 : 0, l, h);
      cells.push_back(curves ? fmt::format("{:.1f}%", 100 * (1 - value))
                             : fmt::format("{:.2f}", mean > 0 ? value / mean : 0));
    }
    table.add(std::move(cells));
  }
  return std::string(curves ? "\nentries kept of each head when 20% of all are kept\n"
                            : "\nweight of each head, in units of the mean\n") +
         table.text(columns);
}

// The losses of answers at each measured share of the entries. Empty if nothing was measured.
std::string losses_text(const std::string& json, std::size_t columns) {
  const auto profile = parse_profile(json);
  if (!profile.ok() || profile->losses.empty()) return {};
  Table table({{"TOKENS", true}, {"KEEP", true}, {"LOSS", true}, {"ERROR", true}});
  for (const Profile::Loss& loss : profile->losses) {
    table.add({std::to_string(loss.tokens), fmt::format("{:.0f}%", loss.keep_ppm / 1e4),
               fmt::format("{:+.3f}", loss.mean), fmt::format("{:.3f}", loss.error)});
  }
  return fmt::format("\nmeasured loss of answers with {}\n", printable(profile->losses_recipe)) +
         table.text(columns);
}

}  // namespace

Status add_profile(Context context, const std::string& file, const std::string& model) {
  PRECIS_ASSIGN(std::string json, read_named(file, limits::kProfileBytesMax));
  PRECIS_ASSIGN(const auto scope, model_scope(context.client, model));
  Json profile = parse_json(json);
  if (scope) {
    if (!profile.is_object()) return Status::invalid(file + ": not a JSON object");
    profile["model"] = scope->hex();
    json = profile.dump();
  }
  const std::string before = recipe_in_force(context.client, model_of(profile));
  auto added = context.client.add_profile(json);
  PRECIS_TRY(added.status().with_context(file));
  const std::string after = recipe_in_force(context.client, added->model);
  if (context.json) {
    Json row = to_json(*added);
    row["recipe_in_force"] = {{"before", before}, {"after", after}};
    context.out += json_text(row);
    return {};
  }
  PRECIS_ASSIGN(const auto models, context.client.models());
  context.out += profile_text(*added, models);
  if (after != before) {
    context.out += fmt::format(
        "puts of this model that name no recipe now use {}, no longer {} (precisctl budget set "
        "--model NAME --recipe ... changes that)\n",
        printable(after), printable(before));
  }
  return {};
}

Status list_profiles(Context context, const std::string& model) {
  PRECIS_ASSIGN(const auto scope, model_scope(context.client, model));
  PRECIS_ASSIGN(const auto rows, context.client.profiles(scope));
  if (context.json) {
    context.out += json_text(Json{{"profiles", rows_json(rows)}});
    return {};
  }
  PRECIS_ASSIGN(const auto models, context.client.models());
  context.out += profiles_text(rows, models, context.columns());
  return {};
}

Status show_profile(Context context, const std::string& model, const std::string& name,
                    const std::string& out) {
  PRECIS_ASSIGN(const Digest fingerprint, find_profile_model(context.client, model, name));
  PRECIS_ASSIGN(const msg::ProfileRow row, context.client.profile(fingerprint, name));
  if (!out.empty()) PRECIS_TRY(write_file(out, row.json + "\n"));
  if (context.json) {
    context.out += json_text(to_json(row));
    return {};
  }
  PRECIS_ASSIGN(const auto models, context.client.models());
  context.out += profile_text(row, models) + table_text(row.json, context.columns()) +
                 losses_text(row.json, context.columns());
  return {};
}

Status remove_profile(Context context, const std::string& model, const std::string& name) {
  PRECIS_ASSIGN(const Digest fingerprint, find_profile_model(context.client, model, name));
  PRECIS_TRY(context.client.remove_profile(fingerprint, name));
  context.out += context.json ? json_text(Json{{"removed", name}})
                              : fmt::format("removed profile {}; segments stored with it stay\n",
                                            printable(name));
  return {};
}

}  // namespace precis::cli
