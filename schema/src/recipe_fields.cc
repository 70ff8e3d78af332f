#include "recipe_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "recipe_words.h"

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

Status set_alpha(Recipe& r, const FieldValue& value) {
  double alpha = 0;
  if (!parse_number(value, alpha) || !(alpha >= 0.0 && alpha <= 1.0)) {
    return refuse(value, "a number in [0, 1]");
  }
  r.ada_alpha_ppm = static_cast<std::uint32_t>(std::llround(alpha * 1e6));
  return {};
}

// The shortest decimal: 50000 is "0.05". Written by hand, so that it never depends on a float
// printer.
std::string alpha_text(const Recipe& r) {
  std::string digits = std::to_string(1'000'000 + r.ada_alpha_ppm % 1'000'000).substr(1);
  digits.erase(digits.find_last_not_of('0') + 1);
  return std::to_string(r.ada_alpha_ppm / 1'000'000) + (digits.empty() ? "" : "." + digits);
}

bool always(const Recipe&) { return true; }
bool is_ada(const Recipe& r) { return r.heads == HeadAllocator::kAda; }
bool is_lagkv(const Recipe& r) { return r.scorer == Scorer::kLagkv; }
bool is_not_lagkv(const Recipe& r) { return !is_lagkv(r); }
bool is_window(const Recipe& r) { return r.scorer == Scorer::kWindowAttention; }

constexpr RecipeField kFields[] = {
    word<&Recipe::ada_mode, kAdaModeWords>("ada_mode", is_ada),
    {"alpha", false, is_ada, set_alpha, alpha_text},
    word<&Recipe::count_rule, kCountRuleWords>("count_rule", always),
    word<&Recipe::group_reduce, kReduceWords>("group_reduce", is_window),
    word<&Recipe::heads, kHeadWords>("heads", always),
    count<&Recipe::kernel>("kernel", is_window),
    count<&Recipe::lag>("lag", is_lagkv),
    flag<&Recipe::lag_kvpress_ranks>("lag_kvpress_ranks", is_lagkv),
    word<&Recipe::layers, kLayerWords>("layers", always),
    count<&Recipe::min_entries>("min_entries", always),
    word<&Recipe::pool_order, kPoolOrderWords>("order", is_window),
    word<&Recipe::pool, kPoolWords>("pool", is_window),
    count<&Recipe::recent>("recent", is_not_lagkv),
    word<&Recipe::row_reduce, kReduceWords>("row_reduce", is_window),
    word<&Recipe::scorer, kScorerWords>("scorer", always),
    word<&Recipe::selector, kSelectorWords>("selector", always),
    count<&Recipe::sinks>("sinks", always),
    count<&Recipe::window>("window", is_window),
};
static_assert(std::ranges::is_sorted(kFields, {}, &RecipeField::name));

}  // namespace

std::span<const RecipeField> recipe_fields() { return kFields; }

std::string in_quotes(std::string_view s) {
  constexpr std::size_t kShown = 200;
  return "'" + std::string(s.substr(0, kShown)) + (s.size() > kShown ? "...'" : "'");
}

}  // namespace precis
