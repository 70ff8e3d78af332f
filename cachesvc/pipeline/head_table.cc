#include "cachesvc/pipeline/head_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "precis/highest_averages.h"
#include "precis/limits.h"
#include "precis/reader_budget.h"

namespace precis {
namespace {

constexpr double kLeastShare = 1e-6;  // the least share of a budget, too
constexpr std::size_t kPartBytesMax = 64;
// The largest models have fewer than 10,000 heads.
constexpr std::uint64_t kTableHeadsMax = 1u << 16;
constexpr std::string_view kLayersForm =
    "layers take a share, such as 0-3=0.5, or entries, such as 0-3=128";
constexpr std::string_view kHeadForm =
    "a head takes LAYER.HEAD=SHARE, such as 12.3=0.6, or entries, such as 12.3=256";

// The text of a part for error messages.
std::string named(std::string_view part) {
  const bool is_long = part.size() > kPartBytesMax;
  return "'" + std::string(part.substr(0, kPartBytesMax)) + (is_long ? "...'" : "'");
}

Status wrong(std::string_view part, std::string_view form) {
  return Status::invalid(named(part) + " is wrong: " + std::string(form));
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

struct Part {
  std::string text;      // without blanks around the sign
  std::size_t line = 0;  // 0: the table has one line
};

struct Parts {
  std::vector<Part> layers, heads;
};

// The next piece of `rest` up to `separator`, which is removed with it.
std::string_view next_piece(std::string_view& rest, char separator) {
  const std::string_view piece = rest.substr(0, rest.find(separator));
  rest.remove_prefix(std::min(rest.size(), piece.size() + 1));
  return piece;
}

Status at_line(const Status& status, std::size_t line) {
  return status.ok() || line == 0 ? status : status.with_context("line " + std::to_string(line));
}

Result<Parts> split(std::string_view text) {
  Parts parts;
  const bool has_lines = text.find('\n') != text.npos;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = next_piece(text, '\n');
    std::string_view rest = line.substr(0, line.find('#'));
    while (!rest.empty()) {
      const std::string_view part = trimmed(next_piece(rest, ','));
      if (part.empty()) continue;
      const std::size_t sign = part.find('=');
      const std::size_t of_line = has_lines ? number : 0;
      if (sign == part.npos || part.size() > kPartBytesMax) {
        return at_line(wrong(part, "a part has the form 0-3=0.5 or 12.3=0.6"), of_line);
      }
      const std::string_view place = trimmed(part.substr(0, sign));
      (place.find('.') == place.npos ? parts.layers : parts.heads)
          .push_back(
              {std::string(place) + "=" + std::string(trimmed(part.substr(sign + 1))), of_line});
    }
  }
  return parts;
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

  // The head may already have the value of its layer.
  Status set_head(std::string_view part) {
    PRECIS_ASSIGN(const double value, value_of(part, kHeadForm));
    const std::string_view place = halves(part, '=').first;
    const auto [first, second] = halves(place, '.');
    const auto layer = number<std::uint32_t>(first), head = number<std::uint32_t>(second);
    if (!layer || !head) return wrong(part, kHeadForm);
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
    if (!entries_) return Budget::ratio(mean);
    return Budget::entries(static_cast<std::uint64_t>(std::llround(mean)));
  }

  // Shares as they are; entries relative to the most that a head has.
  std::vector<float> weights() const {
    const double unit = entries_ ? *std::ranges::max_element(values_) : 1.0;
    std::vector<float> weights;
    for (const double value : values_) weights.push_back(static_cast<float>(value / unit));
    return weights;
  }

 private:
  Result<double> value_of(std::string_view part, std::string_view form) {
    const std::string_view text = halves(part, '=').second;
    const bool is_percent = text.ends_with('%');
    auto value = number<double>(text.substr(0, text.size() - (is_percent ? 1 : 0)));
    if (!value) return wrong(part, form);
    if (is_percent) *value = *value > 0 && *value <= 100 ? *value / 100 : 0;
    const bool is_share = *value >= kLeastShare && *value <= 1;
    const bool is_count =
        *value >= 2 && *value <= limits::kPathTokensMax && *value == std::floor(*value);
    if (!is_share && !is_count) {
      return Status::invalid(named(part) +
                             ": give a share in (0, 1], or a whole number of entries per head "
                             "from 2 on");
    }
    if (first_.empty()) {
      first_ = part;
      entries_ = is_count;
    }
    if (entries_ == is_count) return *value;
    return Status::invalid(named(first_) + " and " + named(part) +
                           " mix shares and entries: give all parts of a table as one of them");
  }

  static Status outside(std::string_view part, const std::string& what, std::uint32_t count) {
    return Status::invalid(named(part) + ": the model has " + what + " 0 to " +
                           std::to_string(count - 1));
  }

  const std::uint32_t num_layers_, num_kv_heads_;
  std::vector<double> values_;   // [num_layers, num_kv_heads]
  std::set<std::size_t> heads_;  // the places that set_head() has set
  std::string first_;            // the part that decides the unit
  bool entries_ = false;         // all parts are entries
};

}  // namespace

Result<HeadTable> parse_head_table(std::string_view text, const Digest& fingerprint,
                                   const ModelSpec& model, const std::string& recipe) {
  HeadTable made;
  PRECIS_ASSIGN(made.recipe, parse_recipe(recipe));
  PRECIS_TRY(EntryForm::of(model, made.recipe.encoding).validate());
  if (made.recipe.needs_probe()) {
    return Status::invalid("recipe '" + recipe +
                           "' takes its scores from a profile, and a table of layers and heads "
                           "needs one as well; name another recipe, such as kvdiff");
  }
  if (std::uint64_t{model.num_layers} * model.num_kv_heads > kTableHeadsMax) {
    return Status::unsupported("a table of layers and heads has at most " +
                               std::to_string(kTableHeadsMax) + " heads, and the model has more");
  }
  PRECIS_ASSIGN(const Parts parts, split(text));
  Values values(model);
  for (const Part& part : parts.layers) {
    PRECIS_TRY(at_line(values.set_layers(part.text), part.line));
  }
  for (const Part& part : parts.heads) PRECIS_TRY(at_line(values.set_head(part.text), part.line));
  PRECIS_TRY(values.check_whole());
  PRECIS_ASSIGN(made.keep, values.mean());
  made.recipe.preset.clear();
  made.recipe.heads = HeadAllocator::kTable;
  made.recipe.layers = LayerAllocator::kTable;
  made.recipe.table = TableKind::kWeights;
  made.recipe.profile.clear();
  Profile& profile = made.profile;
  profile.kind = TableKind::kWeights;
  profile.model = fingerprint;
  profile.sinks = made.recipe.sinks;
  profile.recent = made.recipe.recent;
  profile.num_layers = model.num_layers;
  profile.num_kv_heads = model.num_kv_heads;
  profile.table = values.weights();
  profile.scorer = profile_scorer(made.recipe);
  profile.name = "table-" + profile_digest(profile).hex().substr(0, 12);
  made.recipe.profile = profile.name;
  // Not every recipe takes a table.
  PRECIS_TRY(parse_recipe(canonical_recipe(made.recipe)).status());
  return made;
}

Result<std::vector<std::uint32_t>> head_counts(const HeadTable& table, const ModelSpec& model,
                                               std::uint32_t num_tokens, std::uint32_t begin,
                                               const Budget& keep,
                                               const std::optional<Budget>& limit) {
  Recipe recipe = table.recipe;
  if (recipe.protect_tail || recipe.skip_layers > 0) {
    return Status::unsupported("the recipe protects more tokens than sinks and recent ones");
  }
  Budget within = keep;
  if (limit) {
    PRECIS_ASSIGN(recipe, with_floor_within(recipe, model, num_tokens, begin, *limit));
    PRECIS_ASSIGN(within, within_limit(recipe, model, num_tokens, begin, keep, *limit));
  }
  PRECIS_ASSIGN(const std::uint64_t entries,
                budget_entries(recipe, model, num_tokens, within, begin));
  // Every head first keeps the protected tokens.
  const std::size_t heads = table.profile.table.size();
  std::vector<std::uint32_t> counts;
  std::vector<std::uint64_t> caps;
  std::uint64_t left = entries;
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    const std::uint32_t tokens = visible_tokens(model.windows, l, num_tokens);
    const std::uint32_t first_token = begin + num_tokens - tokens;
    const std::uint32_t sinks = recipe.sinks - std::min(recipe.sinks, first_token);
    const std::uint64_t guarded =
        std::min<std::uint64_t>(sinks + recipe.recent_tokens(tokens), tokens);
    const std::uint64_t first = std::min(guarded, entries / heads);
    counts.insert(counts.end(), model.num_kv_heads, static_cast<std::uint32_t>(first));
    caps.insert(caps.end(), model.num_kv_heads, tokens - first);
    left -= first * model.num_kv_heads;
  }
  const auto shared = highest_averages_counts(table.profile.table, caps, left);
  for (std::size_t c = 0; c < heads; ++c) counts[c] += static_cast<std::uint32_t>(shared[c]);
  return counts;
}

}  // namespace precis
