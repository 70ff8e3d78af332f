// The parsed but not yet interpreted text of a recipe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "precis/status.h"
#include "recipe_fields.h"

namespace precis {

struct Statement {
  struct Given {
    std::string name;
    FieldValue value;
  };
  std::string preset;        // empty: no preset is named
  std::string base;          // the preset that it builds on; empty: none
  std::vector<Given> given;  // in the order written
  std::optional<FieldValue> version;
};

// Reads {"preset": ..., "version": ..., "name": value, ...}; a scorer may replace the preset.
// kInvalidArgument if `text` is no such object; kUnsupported in a build without a JSON parser.
Result<Statement> read_json_recipe(std::string_view text);

}  // namespace precis
