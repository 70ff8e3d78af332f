#include "client/cli/budget_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "client/cli/files.h"
#include "precis/highest_averages.h"
#include "precis/limits.h"
#include "precis/reader_budget.h"

namespace precis::cli {
namespace {

constexpr std::string_view kLayersForm =
    "layers take a share, such as 0-3=0.5, or entries, such as 0-3=128";
constexpr std::string_view kHeadForm =
    "a head takes LAYER.HEAD=SHARE, such as 12.3=0.6, or entries, such as 12.3=256";

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

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

// The values of a table in progress; 0 where none is given.
class Values {
 public:
  explicit Values(const ModelSpec& model)
      : num_layers_(model.num_layers),
        num_kv_heads_(model.num_kv_heads),
        values_(std::size_t{model.num_layers} * model.num_kv_heads) {}

  Status set_layers(std::string_view part) {
    PRECIS_ASSIGN(const double value, value_of(part, kLayersForm));
    const auto [first, last] = halves(halves(part, '=').first, '-');
    const auto begin = number<std::uint32_t>(first), end = number<std::uint32_t>(last);
    if (!begin || !end) return wrong(part, kLayersForm);
    if (*begin > *end) return wrong(part, "the first layer is above the last");
    if (*end >= num_layers_) return outside(part, "layers", num_layers_);
    for (std::uint32_t layer = *begin; layer <= *end; ++layer) {
      double* const row = values_.data() + std::size_t{layer} * num_kv_heads_;
      if (row[0] != 0) {
        return Status::invalid("layer " + std::to_string(layer) + " is given twice");
      }
      std::fill_n(row, num_kv_heads_, value);
    }
    return {};
  }

  // The head may have a value of its layer before.
  Status set_head(std::string_view part) {
    PRECIS_ASSIGN(const double value, value_of(part, kHeadForm));
    const std::string_view place = halves(part, '=').first;
    const auto [first, second] = halves(place, '.');
    const auto layer = number<std::uint32_t>(first), head = number<std::uint32_t>(second);
    if (!layer || !head || first.size() == place.size()) return wrong(part, kHeadForm);
    if (*layer >= num_layers_) return outside(part, "layers", num_layers_);
    if (*head >= num_kv_heads_) return outside(part, "KV heads", num_kv_heads_);
    const std::size_t at = std::size_t{*layer} * num_kv_heads_ + *head;
    if (!heads_.insert(at).second) {
      return Status::invalid("head " + std::to_string(*layer) + "." + std::to_string(*head) +
                             " is given twice");
    }
    values_[at] = value;
    return {};
  }

  Status check_whole() const {
    std::string missing;
    for (std::uint32_t layer = 0; layer < num_layers_; ++layer) {
      const auto begin = values_.begin() + std::ptrdiff_t{layer} * num_kv_heads_;
      if (std::find(begin, begin + num_kv_heads_, 0.0) == begin + num_kv_heads_) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(layer);
    }
    if (missing.empty()) return {};
    return Status::invalid("the table has nothing for heads of layer " + missing +
                           "; give every layer a share or entries");
  }

  Result<Budget> mean() const {
    const double sum = std::accumulate(values_.begin(), values_.end(), 0.0);
    const double mean = sum / static_cast<double>(values_.size());
    if (!are_entries()) return Budget::ratio(mean);
    return Budget::entries(static_cast<std::uint64_t>(std::llround(mean)));
  }

  // Shares as they are; entries relative to the most that a head has.
  std::vector<float> weights() const {
    const double unit = are_entries() ? *std::ranges::max_element(values_) : 1.0;
    std::vector<float> weights;
    for (const double value : values_) weights.push_back(static_cast<float>(value / unit));
    return weights;
  }

 private:
  static bool is_entries(double value) { return value > 1; }
  bool are_entries() const { return is_entries(values_.front()); }

  Result<double> value_of(std::string_view part, std::string_view form) {
    const auto [place, text] = halves(part, '=');
    const bool is_percent = text.ends_with('%');
    auto value = number<double>(text.substr(0, text.size() - (is_percent ? 1 : 0)));
    if (value && is_percent) *value = *value > 0 && *value <= 100 ? *value / 100 : 0;
    if (place.size() == part.size() || !value) return wrong(part, form);
    const bool is_share = *value > 0 && *value <= 1;
    const bool is_count =
        *value >= 2 && *value <= limits::kPathTokensMax && *value == std::floor(*value);
    if (!is_share && !is_count) {
      return Status::invalid("'" + std::string(part) +
                             "': give a share in (0, 1], or a whole number of entries per head "
                             "from 2 on");
    }
    if (first_.empty()) first_ = part;
    const double first = number<double>(halves(first_, '=').second).value_or(0);
    if (is_entries(first) == is_count) return *value;
    return Status::invalid("'" + first_ + "' and '" + std::string(part) +
                           "' mix shares and entries: give all parts of a table as one of them");
  }

  static Status outside(std::string_view part, const std::string& what, std::uint32_t count) {
    return Status::invalid("'" + std::string(part) + "': the model has " + what + " 0 to " +
                           std::to_string(count - 1));
  }

  const std::uint32_t num_layers_, num_kv_heads_;
  std::vector<double> values_;   // [num_layers, num_kv_heads]
  std::set<std::size_t> heads_;  // the places that set_head() has set
  std::string first_;            // the part that decides the unit
};

template <typename Set>
Status set_all(const std::vector<TableParts::Part>& parts, Set set) {
  for (const TableParts::Part& part : parts) {
    const Status status = set(part.text);
    if (!status.ok()) return part.place.empty() ? status : status.with_context(part.place);
  }
  return {};
}

}  // namespace

TableParts table_parts(const std::string& layers, const std::vector<std::string>& heads) {
  TableParts parts;
  for (std::string_view rest = layers; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    parts.layers.push_back({std::string(part), {}});
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  }
  for (const std::string& head : heads) parts.heads.push_back({head, {}});
  return parts;
}

Result<TableParts> read_table(const std::string& file) {
  PRECIS_ASSIGN(const std::string text, read_named(file, limits::kConfigBytesMax));
  TableParts parts;
  std::size_t line_number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::string place = file + ":" + std::to_string(++line_number);
    const std::string_view part = trimmed(line.substr(0, line.find('#')));
    if (part.empty()) continue;
    const std::size_t sign = part.find('=');
    if (sign == part.npos) {
      return wrong(part, "a line has the form 0-3=0.5 or 12.3=0.6").with_context(place);
    }
    const std::string_view where = trimmed(part.substr(0, sign));
    const bool is_head = where.find('.') != where.npos;
    (is_head ? parts.heads : parts.layers)
        .push_back({std::string(where) + "=" + std::string(trimmed(part.substr(sign + 1))), place});
  }
  return parts;
}

Result<BudgetTable> make_budget_table(const msg::ModelRow& model, const std::string& recipe,
                                      const TableParts& parts) {
  BudgetTable made;
  PRECIS_ASSIGN(Recipe with_table, parse_recipe(recipe));
  if (with_table.needs_probe()) {
    return Status::invalid("recipe '" + recipe +
                           "' takes its scores from a profile, and shares of layers and heads need "
                           "one as well; name another recipe, such as --recipe kvdiff");
  }
  Values values(model.model);
  PRECIS_TRY(
      set_all(parts.layers, [&](const std::string& part) { return values.set_layers(part); }));
  PRECIS_TRY(set_all(parts.heads, [&](const std::string& part) { return values.set_head(part); }));
  PRECIS_TRY(values.check_whole());
  PRECIS_ASSIGN(made.keep, values.mean());
  with_table.preset.clear();
  with_table.heads = HeadAllocator::kTable;
  with_table.layers = LayerAllocator::kTable;
  with_table.table = TableKind::kWeights;
  with_table.profile.clear();
  Profile& profile = made.profile;
  profile.kind = TableKind::kWeights;
  profile.model = model.fingerprint;
  profile.sinks = with_table.sinks;
  profile.recent = with_table.recent;
  profile.num_layers = model.model.num_layers;
  profile.num_kv_heads = model.model.num_kv_heads;
  profile.table = values.weights();
  profile.scorer = profile_scorer(with_table);
  profile.name = "table-" + profile_digest(profile).hex().substr(0, 12);
  with_table.profile = profile.name;
  PRECIS_TRY(
      parse_recipe(canonical_recipe(with_table)).status());  // not every recipe takes a table
  made.recipe = std::move(with_table);
  return made;
}

Result<std::vector<std::uint32_t>> table_counts(const BudgetTable& table, const ModelSpec& model,
                                                const msg::SegmentInfo& like, const Budget& keep,
                                                const std::optional<Budget>& limit) {
  const std::uint32_t tokens = like.end - like.begin;
  Recipe recipe = table.recipe;
  Budget within = keep;
  if (limit) {
    PRECIS_ASSIGN(recipe, with_floor_within(recipe, model, tokens, like.begin, *limit));
    PRECIS_ASSIGN(within, within_limit(recipe, model, tokens, like.begin, keep, *limit));
  }
  PRECIS_ASSIGN(const std::uint64_t entries,
                budget_entries(recipe, model, tokens, within, like.begin));
  // Every head first keeps the protected tokens.
  const std::uint32_t sinks =
      recipe.sinks > like.begin ? std::min(recipe.sinks - like.begin, tokens) : 0;
  const std::uint32_t guarded = sinks + std::min(recipe.recent, tokens - sinks);
  const std::size_t heads = table.profile.table.size();
  const std::uint64_t first = std::min<std::uint64_t>(guarded, entries / heads);
  const std::vector<std::uint64_t> caps(heads, tokens - first);
  const auto shared = highest_averages_counts(table.profile.table, caps, entries - heads * first);
  std::vector<std::uint32_t> counts;
  for (const std::uint64_t count : shared) {
    counts.push_back(static_cast<std::uint32_t>(first + count));
  }
  return counts;
}

}  // namespace precis::cli
