// The parameters of recipes as text: one row per field of Recipe, used for reading and writing.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "precis/recipe.h"

namespace precis {

// A parameter's value as text. In preset(name=value) it is always kBare; in JSON it has its JSON
// type.
struct FieldValue {
  enum class Kind : std::uint8_t { kBare, kString, kNumber, kBoolean };
  Kind kind = Kind::kBare;
  std::string text;
};

struct RecipeField {
  std::string_view name;
  bool is_word;  // in quotes in JSON
  // True if the field applies to this recipe. A field that does not apply has its default value,
  // and is neither accepted nor written.
  bool (*applies)(const Recipe&);
  // kInvalidArgument; the message does not contain the field's name.
  Status (*set)(Recipe&, const FieldValue&);
  std::string (*text)(const Recipe&);
  // Left out of the canonical text at its default, since older texts lack it.
  bool is_optional = false;
};

// Every field, sorted by name.
std::span<const RecipeField> recipe_fields();

// OK if a profile may have this name. Recipe texts contain the name without escapes, so the name
// must be UTF-8 without commas, brackets, quotes, backslashes, control characters or spaces at its
// ends.
Status check_sayable(std::string_view name);

// Quotes text for an error message. Long texts are cut, because messages have a maximum size.
std::string in_quotes(std::string_view s);

}  // namespace precis
