#include "client/cli/budget_table.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "precis/recipe.h"

namespace precis::cli {
namespace {

constexpr std::string_view kLayersForm = "--layers takes parts such as 0-3=0.5,4-31=0.15";
constexpr std::string_view kHeadForm = "--head takes LAYER.HEAD=SHARE, such as 12.3=0.6";

Status wrong(std::string_view part, std::string_view form) {
  return Status::invalid("'" + std::string(part) + "' is wrong: " + std::string(form));
}

template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// "a SEPARATOR b"; without the separator, b is a.
std::pair<std::string_view, std::string_view> halves(std::string_view text, char separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, text};
  return {text.substr(0, at), text.substr(at + 1)};
}

Result<float> share(std::string_view part, std::string_view form) {
  const auto [place, text] = halves(part, '=');
  const auto value = number<double>(text);
  if (place.size() == part.size() || !value) return wrong(part, form);
  if (!(*value > 0 && *value <= 1)) {
    return Status::invalid("'" + std::string(part) + "': the share must be in (0, 1]");
  }
  return static_cast<float>(*value);
}

Status outside(std::string_view part, const std::string& what, std::uint32_t count) {
  return Status::invalid("'" + std::string(part) + "': the model has " + what + " 0 to " +
                         std::to_string(count - 1));
}

// A share of the table that is not given is 0.
Status set_layers(std::string_view part, Profile& profile) {
  PRECIS_ASSIGN(const float value, share(part, kLayersForm));
  const auto [first, last] = halves(halves(part, '=').first, '-');
  const auto begin = number<std::uint32_t>(first), end = number<std::uint32_t>(last);
  if (!begin || !end || *begin > *end) return wrong(part, kLayersForm);
  if (*end >= profile.num_layers) return outside(part, "layers", profile.num_layers);
  for (std::uint32_t layer = *begin; layer <= *end; ++layer) {
    float* const row = profile.table.data() + std::size_t{layer} * profile.num_kv_heads;
    if (row[0] != 0) {
      return Status::invalid("layer " + std::to_string(layer) + " is given twice");
    }
    std::fill_n(row, profile.num_kv_heads, value);
  }
  return {};
}

// `given`: the places that a --head has set, which may have a share by --layers before.
Status set_head(std::string_view part, Profile& profile, std::set<std::size_t>& given) {
  PRECIS_ASSIGN(const float value, share(part, kHeadForm));
  const std::string_view place = halves(part, '=').first;
  const auto [first, second] = halves(place, '.');
  const auto layer = number<std::uint32_t>(first), head = number<std::uint32_t>(second);
  if (!layer || !head || first.size() == place.size()) return wrong(part, kHeadForm);
  if (*layer >= profile.num_layers) return outside(part, "layers", profile.num_layers);
  if (*head >= profile.num_kv_heads) return outside(part, "KV heads", profile.num_kv_heads);
  const std::size_t at = std::size_t{*layer} * profile.num_kv_heads + *head;
  if (!given.insert(at).second) {
    return Status::invalid("head " + std::to_string(*layer) + "." + std::to_string(*head) +
                           " is given twice");
  }
  profile.table[at] = value;
  return {};
}

Status check_whole(const Profile& profile) {
  std::string missing;
  for (std::uint32_t layer = 0; layer < profile.num_layers; ++layer) {
    const auto begin = profile.table.begin() + layer * profile.num_kv_heads;
    if (std::find(begin, begin + profile.num_kv_heads, 0.0f) == begin + profile.num_kv_heads) {
      continue;
    }
    missing += (missing.empty() ? "" : ", ") + std::to_string(layer);
  }
  if (missing.empty()) return {};
  return Status::invalid("the table has no share for heads of layer " + missing +
                         "; give every layer one with --layers");
}

}  // namespace

Result<BudgetTable> make_budget_table(const msg::ModelRow& model, const std::string& recipe,
                                      const std::string& layers,
                                      const std::vector<std::string>& heads) {
  BudgetTable made;
  PRECIS_ASSIGN(Recipe with_table, parse_recipe(recipe));
  if (with_table.needs_probe()) {
    return Status::invalid("recipe '" + recipe +
                           "' takes its scores from a profile, and shares of layers and heads need "
                           "one as well; name another recipe, such as --recipe kvdiff");
  }
  with_table.preset.clear();
  with_table.heads = HeadAllocator::kTable;
  with_table.layers = LayerAllocator::kTable;
  with_table.table = TableKind::kWeights;
  Profile& profile = made.profile;
  profile.kind = TableKind::kWeights;
  profile.model = model.fingerprint;
  profile.sinks = with_table.sinks;
  profile.recent = with_table.recent;
  profile.num_layers = model.model.num_layers;
  profile.num_kv_heads = model.model.num_kv_heads;
  profile.table.resize(std::size_t{profile.num_layers} * profile.num_kv_heads);
  for (std::string_view rest = layers; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    PRECIS_TRY(set_layers(part, profile));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  std::set<std::size_t> given;
  for (const std::string& head : heads) PRECIS_TRY(set_head(head, profile, given));
  PRECIS_TRY(check_whole(profile));
  with_table.profile.clear();
  profile.scorer = profile_scorer(with_table);
  profile.name = "table-" + profile_digest(profile).hex().substr(0, 12);
  with_table.profile = profile.name;
  made.recipe = canonical_recipe(with_table);
  const double sum = std::accumulate(profile.table.begin(), profile.table.end(), 0.0);
  PRECIS_ASSIGN(made.keep, Budget::ratio(sum / static_cast<double>(profile.table.size())));
  return made;
}

}  // namespace precis::cli
