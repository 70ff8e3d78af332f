#include "recipe_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "precis/limits.h"
#include "recipe_words.h"
#include "utf8.h"

namespace precis {
namespace {

using Kind = FieldValue::Kind;

Status refuse(const FieldValue& value, std::string_view must_be) {
  return Status::invalid(in_quotes(value.text) + " must be " + std::string(must_be));
}

template <typename T>
bool parse_number(const FieldValue& value, T& out) {
  if (value.kind == Kind::kString || value.kind == Kind::kBoolean) return false;
  const char* end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, out);
  return error == std::errc() && stop == end;
}

// The shortest decimal: 50000 is "0.05". Uses integers only, so the text never depends on how
// floats are printed.
std::string ppm_text(std::uint32_t ppm) {
  std::string digits = std::to_string(1'000'000 + ppm % 1'000'000).substr(1);
  digits.erase(digits.find_last_not_of('0') + 1);
  return std::to_string(ppm / 1'000'000) + (digits.empty() ? "" : "." + digits);
}

template <auto Member, const auto& Words>
constexpr RecipeField word(std::string_view name, bool (*applies)(const Recipe&)) {
  using E = std::remove_cvref_t<decltype(std::declval<Recipe>().*Member)>;
  return {
      name, true, applies,
      [](Recipe& r, const FieldValue& value) -> Status {
        const auto found = std::ranges::find(Words, value.text);
        if (found != Words.end() && (value.kind == Kind::kBare || value.kind == Kind::kString)) {
          r.*Member = static_cast<E>(found - Words.begin());
          return {};
        }
        std::string choices;
        for (std::string_view w : Words) choices += (choices.empty() ? "" : ", ") + std::string(w);
        return refuse(value, "one of " + choices);
      },
      [](const Recipe& r) { return std::string(word_of(Words, r.*Member)); }};
}

template <auto Member>
constexpr RecipeField count(std::string_view name, bool (*applies)(const Recipe&)) {
  return {name, false, applies,
          [](Recipe& r, const FieldValue& value) -> Status {
            std::uint32_t number = 0;
            if (!parse_number(value, number)) return refuse(value, "a whole number");
            r.*Member = number;
            return {};
          },
          [](const Recipe& r) { return std::to_string(r.*Member); }};
}

template <auto Member>
constexpr RecipeField flag(std::string_view name, bool (*applies)(const Recipe&)) {
  return {name, false, applies,
          [](Recipe& r, const FieldValue& value) -> Status {
            const bool typed = value.kind == Kind::kBare || value.kind == Kind::kBoolean;
            if (!typed || (value.text != "true" && value.text != "false")) {
              return refuse(value, "true or false");
            }
            r.*Member = value.text == "true";
            return {};
          },
          [](const Recipe& r) { return std::string(r.*Member ? "true" : "false"); }};
}

constexpr RecipeField optional(RecipeField field) {
  field.is_optional = true;
  return field;
}

// A decimal stored as parts per million. `Max`: the largest allowed value, in ppm.
template <auto Member, std::uint32_t Max>
constexpr RecipeField decimal(std::string_view name, bool (*applies)(const Recipe&)) {
  return {name, false, applies,
          [](Recipe& r, const FieldValue& value) -> Status {
            double number = 0;
            if (!parse_number(value, number) || !(number >= 0.0 && number * 1e6 <= Max)) {
              return refuse(value, "a number in [0, " + std::to_string(Max / 1'000'000) + "]");
            }
            r.*Member = static_cast<std::uint32_t>(std::llround(number * 1e6));
            return {};
          },
          [](const Recipe& r) { return ppm_text(r.*Member); }};
}

Status set_profile(Recipe& r, const FieldValue& value) {
  const bool typed = value.kind == Kind::kBare || value.kind == Kind::kString;
  if (!typed || value.text.size() > limits::kNameBytesMax) {
    return refuse(value, "the name of a profile, at most " + std::to_string(limits::kNameBytesMax) +
                             " bytes");
  }
  PRECIS_TRY(check_sayable(value.text));
  r.profile = value.text;
  return {};
}

bool always(const Recipe&) { return true; }
bool is_ada(const Recipe& r) { return r.heads == HeadAllocator::kAda; }
bool uses_attention(const Recipe& r) { return is_attention(r.scorer); }
bool uses_variance(const Recipe& r) {
  return uses_attention(r) && r.row_reduce == RowReduce::kMeanVariance;
}
bool uses_lag(const Recipe& r) { return r.is_partitioned(); }
bool uses_recent(const Recipe& r) { return !r.is_partitioned(); }
// A scorer that protects its window needs all of it.
bool uses_recent_share(const Recipe& r) { return uses_recent(r) && !protects_window(r.scorer); }
bool is_lagkv(const Recipe& r) { return r.scorer == Scorer::kLagkv; }
bool is_knorm(const Recipe& r) { return r.scorer == Scorer::kKnorm; }
bool is_random(const Recipe& r) { return r.scorer == Scorer::kRandom; }
bool is_expected(const Recipe& r) { return r.scorer == Scorer::kExpectedAttention; }
bool is_pyramid(const Recipe& r) { return r.layers == LayerAllocator::kPyramid; }
bool is_preference(const Recipe& r) { return r.layers == LayerAllocator::kPreference; }
bool uses_profile(const Recipe& r) { return r.needs_profile(); }
bool is_two_stage(const Recipe& r) { return r.selector == Selector::kTwoStage; }
bool is_partition_topk(const Recipe& r) { return r.selector == Selector::kPartitionTopk; }
bool is_chunk(const Recipe& r) { return r.selector == Selector::kChunk; }
bool is_threshold(const Recipe& r) { return r.selector == Selector::kThreshold; }

constexpr RecipeField kFields[] = {
    word<&Recipe::ada_mode, kAdaModeWords>("ada_mode", is_ada),
    decimal<&Recipe::ada_alpha_ppm, 1'000'000>("alpha", is_ada),
    count<&Recipe::beta>("beta", is_pyramid),
    count<&Recipe::chunk>("chunk", is_chunk),
    word<&Recipe::count_rule, kCountRuleWords>("count_rule", always),
    decimal<&Recipe::ea_epsilon_ppm, 1'000'000>("ea_epsilon", is_expected),
    flag<&Recipe::ea_value_norm>("ea_value_norm", is_expected),
    optional(word<&Recipe::encoding, kEncodingWords>("encoding", always)),
    decimal<&Recipe::epsilon_ppm, 1'000'000>("epsilon", is_two_stage),
    decimal<&Recipe::first_stage_ppm, 1'000'000>("first_stage", is_two_stage),
    decimal<&Recipe::gamma_ppm, 4'000'000'000>("gamma", uses_variance),
    word<&Recipe::group_reduce, kReduceWords>("group_reduce", uses_attention),
    word<&Recipe::heads, kHeadWords>("heads", always),
    count<&Recipe::kernel>("kernel", uses_attention),
    count<&Recipe::lag>("lag", uses_lag),
    flag<&Recipe::lag_kvpress_ranks>("lag_kvpress_ranks", is_lagkv),
    word<&Recipe::layers, kLayerWords>("layers", always),
    decimal<&Recipe::mass_ppm, 1'000'000>("mass", is_threshold),
    count<&Recipe::min_entries>("min_entries", always),
    word<&Recipe::pool_order, kPoolOrderWords>("order", uses_attention),
    decimal<&Recipe::partition_keep_ppm, 1'000'000>("partition_keep", is_partition_topk),
    word<&Recipe::pool, kPoolWords>("pool", uses_attention),
    {"profile", true, uses_profile, set_profile, [](const Recipe& r) { return r.profile; }},
    count<&Recipe::recent>("recent", uses_recent),
    optional(decimal<&Recipe::recent_share_ppm, 1'000'000>("recent_share", uses_recent_share)),
    word<&Recipe::row_reduce, kRowReduceWords>("row_reduce", uses_attention),
    word<&Recipe::scorer, kScorerWords>("scorer", always),
    count<&Recipe::seed>("seed", is_random),
    word<&Recipe::selector, kSelectorWords>("selector", always),
    count<&Recipe::sinks>("sinks", always),
    count<&Recipe::skip_layers>("skip_layers", is_knorm),
    word<&Recipe::table, kTableWords>("table", uses_profile),
    decimal<&Recipe::tau1_ppm, 100'000'000>("tau1", is_preference),
    decimal<&Recipe::tau2_ppm, 100'000'000>("tau2", is_preference),
    word<&Recipe::value_norm, kValueNormWords>("value_norm", is_two_stage),
    count<&Recipe::window>("window", uses_attention),
};
static_assert(std::ranges::is_sorted(kFields, {}, &RecipeField::name));

}  // namespace

std::span<const RecipeField> recipe_fields() { return kFields; }

Status check_sayable(std::string_view name) {
  const auto stands = [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f &&
           std::string_view(",(){}\"\\").find(c) == std::string_view::npos;
  };
  const bool sayable = is_utf8(name) && std::ranges::all_of(name, stands) &&
                       !name.starts_with(' ') && !name.ends_with(' ');
  if (sayable) return {};
  return Status::invalid(in_quotes(name) +
                         " cannot be used in a recipe's text: it must have no commas, brackets, "
                         "quotes, backslashes or control characters, and no spaces at its ends");
}

std::string in_quotes(std::string_view s) {
  constexpr std::size_t kShown = 200;
  return "'" + std::string(s.substr(0, kShown)) + (s.size() > kShown ? "...'" : "'");
}

}  // namespace precis
