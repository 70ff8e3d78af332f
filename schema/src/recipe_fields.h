// The parameters of recipes as text: one row per field of Recipe, shared by reader and writer.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "precis/recipe.h"

namespace precis {

// A parameter's value as written: in preset(name=value) always bare, in JSON of its JSON type.
struct FieldValue {
  enum class Kind : std::uint8_t { kBare, kString, kNumber, kBoolean };
  Kind kind = Kind::kBare;
  std::string text;
};

struct RecipeField {
  std::string_view name;
  bool is_word;  // quoted in JSON
  // Whether the field means anything in this recipe. One that does not stands at its default and is
  // neither accepted nor written.
  bool (*applies)(const Recipe&);
  // kInvalidArgument without the field's name.
  Status (*set)(Recipe&, const FieldValue&);
  std::string (*text)(const Recipe&);
};

// Every field, sorted by name.
std::span<const RecipeField> recipe_fields();

// Whether a profile may be called so: the name stands in every text of a recipe as it is, so it is
// UTF-8 without commas, brackets, quotes, backslashes, control characters or spaces at its ends.
Status check_sayable(std::string_view name);

// What was written, for an error message. Long texts are cut: messages have a maximum.
std::string in_quotes(std::string_view s);

}  // namespace precis
