// Profiles as JSON, and the check whether a recipe may use one.
#include "precis/profile.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <type_traits>
#include <utility>

#include "precis/block_digest.h"
#include "precis/limits.h"
#include "precis/loss_budget.h"
#include "profile_text.h"
#include "recipe_fields.h"
#include "recipe_words.h"

namespace precis {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kProfileVersion = 1;

constexpr std::size_t kNumbersAtATime = 4096;
constexpr double kLossMax = 1e3;

// Reads one field; the error message names it.
template <typename T>
Status read_field(const nlohmann::json& object, const char* field, T& out) {
  const auto found = object.find(field);
  const bool fits =
      found != object.end() &&
      (std::is_same_v<T, std::string> ? found->is_string() : found->is_number_unsigned());
  if (!fits) {
    return Status::invalid(std::string("profile: ") + field + " must be " +
                           (std::is_same_v<T, std::string> ? "a text" : "a whole number"));
  }
  if constexpr (!std::is_same_v<T, std::string>) {
    if (found->template get<std::uint64_t>() > 0xffffffffu) {
      return Status::invalid(std::string("profile: ") + field + " is out of range");
    }
  }
  out = found->template get<T>();
  return {};
}

// The numbers that a kind of table may hold. The bounds are floats like the stored values, so a
// stored value always passes when it is read again.
struct Range {
  float least, most;
  std::string_view text;
};
Range range_of(TableKind kind) {
  switch (kind) {
    case TableKind::kCurves: return {0.0f, 1.0f, "[0, 1]"};
    case TableKind::kWeights: return {0.0f, 1e30f, "[0, 1e30]"};
    case TableKind::kProbe: return {-1e6f, 1e6f, "[-1e6, 1e6]"};
  }
  return {};
}

// The number of rows; for a probe, the size of the table decides about its channels.
Result<std::size_t> rows_of_table(const Profile& profile, std::size_t numbers) {
  const std::size_t heads = std::size_t{profile.num_layers} * profile.num_kv_heads;
  if (profile.kind == TableKind::kProbe) {
    const std::size_t rows = numbers / heads, least = ProbeRows{0}.count();
    const std::size_t head_dim = rows < least ? 0 : (rows - least) / 3;
    const bool fits = head_dim > 0 && head_dim <= limits::kHeadDimMax &&
                      numbers == ProbeRows{static_cast<std::uint32_t>(head_dim)}.count() * heads;
    if (fits) return rows;
    if (rows >= least && numbers == rows * heads && (rows + 1 - least) % 3 == 0) {
      return Status::invalid(
          "profile: table is of a probe of an earlier build, without the distance; build it anew");
    }
    return Status::invalid(
        "profile: table must be an array of numbers, [3 * head_dim + 6, num_layers, num_kv_heads]");
  }
  const std::size_t rows = profile.kind == TableKind::kCurves ? Profile::kCurveRows : 1;
  if (numbers == rows * heads) return rows;
  return Status::invalid("profile: table must be an array of " + std::to_string(rows * heads) +
                         " numbers, [" + std::to_string(rows) + ", num_layers, num_kv_heads]");
}

Status read_table(const std::vector<double>& table, Profile& profile) {
  PRECIS_TRY(rows_of_table(profile, table.size()).status());
  const Range range = range_of(profile.kind);
  profile.table.reserve(table.size());
  for (const double x : table) {
    if (!(x >= range.least && x <= range.most)) {
      return Status::invalid("profile: table[" + std::to_string(profile.table.size()) +
                             "] must be a number in " + std::string(range.text));
    }
    profile.table.push_back(static_cast<float>(x));
  }
  if (profile.kind != Profile::Kind::kCurves) return {};
  // A head's pruned share never falls as the overall pruned share grows.
  const std::size_t heads = std::size_t{profile.num_layers} * profile.num_kv_heads;
  for (std::size_t i = heads; i < profile.table.size(); ++i) {
    if (profile.table[i] + 1e-6f >= profile.table[i - heads]) continue;
    return Status::invalid("profile: table row " + std::to_string(i / heads) +
                           " prunes less of layer " +
                           std::to_string(i % heads / profile.num_kv_heads) + ", head " +
                           std::to_string(i % profile.num_kv_heads) + " than the row before");
  }
  return {};
}

// `numbers`: [n, ProfileText::kLossNumbers].
Status read_losses(const std::vector<double>& numbers, const nlohmann::json& object,
                   Profile& profile) {
  if (numbers.empty()) return {};
  PRECIS_TRY(read_field(object, "losses_recipe", profile.losses_recipe));
  const auto recipe = parse_recipe(profile.losses_recipe);
  PRECIS_TRY(recipe.status().with_context("profile: losses_recipe"));
  profile.losses_recipe = measured_recipe(*recipe);
  for (std::size_t i = 0; i < numbers.size(); i += ProfileText::kLossNumbers) {
    const bool fits = numbers.size() - i >= ProfileText::kLossNumbers && numbers[i] >= 1 &&
                      numbers[i] <= limits::kPathTokensMax && numbers[i + 1] >= 1e-6 &&
                      numbers[i + 1] <= 1 && std::abs(numbers[i + 2]) <= kLossMax &&
                      numbers[i + 3] >= 0 && numbers[i + 3] <= kLossMax;
    if (!fits) {
      return Status::invalid("profile: losses[" + std::to_string(i) +
                             "] must begin a row of four numbers: tokens, share of the entries, "
                             "mean loss, and its error");
    }
    const Profile::Loss loss{static_cast<std::uint32_t>(numbers[i]),
                             static_cast<std::uint32_t>(std::llround(numbers[i + 1] * 1e6)),
                             static_cast<float>(numbers[i + 2]),
                             static_cast<float>(numbers[i + 3])};
    const auto place = [](const Profile::Loss& l) { return std::pair(l.tokens, l.keep_ppm); };
    if (!profile.losses.empty() && place(profile.losses.back()) >= place(loss)) {
      return Status::invalid(
          "profile: losses[" + std::to_string(i) +
          "] begins a row that is not above the one before, by tokens and share");
    }
    profile.losses.push_back(loss);
  }
  return {};
}

// Writes the table's numbers in parts: a JSON tree of all of them takes several times their text.
std::string text_of(const Profile& profile, const std::string& name, bool with_losses) {
  Json head = {{"version", kProfileVersion},
               {"name", name},
               {"kind", table_kind_name(profile.kind)},
               {"model", profile.model.hex()},
               {"scorer", profile.scorer},
               {"sinks", profile.sinks},
               {"recent", profile.recent},
               {"num_layers", profile.num_layers},
               {"num_kv_heads", profile.num_kv_heads},
               {"num_tokens", profile.num_tokens},
               {"text_digest", profile.text_digest}};
  if (with_losses && !profile.losses.empty()) {
    head["losses_recipe"] = profile.losses_recipe;
    for (const Profile::Loss& loss : profile.losses) {
      for (const double x :
           {1.0 * loss.tokens, loss.keep_ppm / 1e6, double{loss.mean}, double{loss.error}}) {
        head["losses"].push_back(x);
      }
    }
  }
  head["table"] = Json::array();
  constexpr std::string_view kEnd = "]}";
  std::string text = head.dump();
  text.resize(text.size() - kEnd.size());
  for (std::span<const float> rest = profile.table; !rest.empty();) {
    const auto some = rest.first(std::min(rest.size(), kNumbersAtATime));
    rest = rest.subspan(some.size());
    const std::string list = Json(some).dump();
    text.append(list, 1, list.size() - 2);  // without the list's brackets
    if (!rest.empty()) text += ',';
  }
  return text += kEnd;
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Status differs(std::string_view what, const std::string& profile, const std::string& recipe) {
  return Status::invalid("the profile was built for " + std::string(what) + " " + profile +
                         ", not for " + recipe + ": build one for it");
}

}  // namespace

Result<Profile> parse_profile(std::string_view text) {
  if (text.size() > limits::kProfileBytesMax) {
    return Status::invalid("profile has " + std::to_string(text.size()) + " bytes, maximum " +
                           std::to_string(limits::kProfileBytesMax));
  }
  ProfileText read;
  if (!nlohmann::json::sax_parse(text, &read)) {
    return read.problem.ok() ? Status::invalid("profile is not a JSON object") : read.problem;
  }
  const nlohmann::json& object = read.fields;
  std::uint32_t version = 0;
  PRECIS_TRY(read_field(object, "version", version));
  if (version != kProfileVersion) {
    return Status::version("profile version is " + std::to_string(version) + ", this build knows " +
                           std::to_string(kProfileVersion));
  }
  Profile profile;
  std::string kind, model;
  PRECIS_TRY(read_field(object, "name", profile.name));
  PRECIS_TRY(read_field(object, "kind", kind));
  PRECIS_TRY(read_field(object, "model", model));
  PRECIS_TRY(read_field(object, "scorer", profile.scorer));
  PRECIS_TRY(read_field(object, "sinks", profile.sinks));
  PRECIS_TRY(read_field(object, "recent", profile.recent));
  PRECIS_TRY(read_field(object, "num_layers", profile.num_layers));
  PRECIS_TRY(read_field(object, "num_kv_heads", profile.num_kv_heads));
  PRECIS_TRY(read_field(object, "num_tokens", profile.num_tokens));
  PRECIS_TRY(read_field(object, "text_digest", profile.text_digest));
  if (profile.name.empty() || profile.name.size() > limits::kNameBytesMax) {
    return Status::invalid("profile: name must have 1 to " + std::to_string(limits::kNameBytesMax) +
                           " bytes");
  }
  PRECIS_TRY(check_sayable(profile.name).with_context("profile: name"));
  if (is_sha256(profile.name)) {
    return Status::invalid(
        "profile: name must not look like a digest, because recipes name profiles by their digests "
        "too");
  }
  if (!profile.text_digest.empty() && !is_sha256(profile.text_digest)) {
    return Status::invalid(
        "profile: text_digest must be a SHA-256 in lower-case hexadecimal, or "
        "empty");
  }
  const auto known = std::ranges::find(kTableWords, kind);
  if (known == kTableWords.end()) {
    return Status::invalid("profile: kind must be curves, weights or probe");
  }
  profile.kind = static_cast<TableKind>(known - kTableWords.begin());
  PRECIS_ASSIGN(profile.model, parse_digest(model));
  if (const Status status = parse_recipe(profile.scorer).status(); !status.ok()) {
    return status.with_context("profile: scorer");
  }
  if (profile.num_layers == 0 || profile.num_layers > limits::kLayersMax ||
      profile.num_kv_heads == 0 || profile.num_kv_heads > limits::kKvHeadsMax) {
    return Status::invalid("profile: num_layers must be in [1, " +
                           std::to_string(limits::kLayersMax) + "], num_kv_heads in [1, " +
                           std::to_string(limits::kKvHeadsMax) + "]");
  }
  PRECIS_TRY(read_table(read.table, profile));
  PRECIS_TRY(read_losses(read.losses, object, profile));
  return profile;
}

std::string profile_json(const Profile& profile) {
  return text_of(profile, profile.name, /*with_losses=*/true);
}

Digest profile_digest(const Profile& profile) {
  const std::string json = text_of(profile, {}, /*with_losses=*/false);
  return sha256(std::as_bytes(std::span(json)));
}

std::string profile_scorer(const Recipe& recipe) {
  if (recipe.needs_probe()) return canonical_recipe(scorer_defaults(recipe.scorer));
  Recipe scorer = recipe;
  scorer.preset.clear();
  scorer.profile.clear();
  scorer.table = Recipe().table;
  scorer.heads = HeadAllocator::kUniform;
  scorer.layers = LayerAllocator::kUniform;
  scorer.selector = Selector::kTopk;
  scorer.min_entries = 0;
  scorer.encoding = Encoding::kRaw;
  // Reset the other fields that only allocators and selectors read.
  const Recipe defaults;
  scorer.ada_mode = defaults.ada_mode;
  scorer.ada_alpha_ppm = defaults.ada_alpha_ppm;
  scorer.first_stage_ppm = defaults.first_stage_ppm;
  scorer.epsilon_ppm = defaults.epsilon_ppm;
  scorer.value_norm = defaults.value_norm;
  scorer.partition_keep_ppm = defaults.partition_keep_ppm;
  return canonical_recipe(scorer);
}

Status check_profile(const Profile& profile, const Recipe& recipe, const Digest& model) {
  if (profile.kind != recipe.table) {
    return differs("a table of", std::string(table_kind_name(profile.kind)),
                   std::string(table_kind_name(recipe.table)));
  }
  if (profile.model != model) return differs("model", profile.model.hex(), model.hex());
  const std::string scorer = profile_scorer(recipe);
  if (profile.scorer != scorer) return differs("scorer", profile.scorer, scorer);
  return {};
}

}  // namespace precis
