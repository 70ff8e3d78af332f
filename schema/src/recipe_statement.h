// What the text of a recipe says, before any of it is understood.
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
  std::string preset;        // empty: none named
  std::string base;          // the preset that it builds on; empty: its own
  std::vector<Given> given;  // in the order written
  std::optional<FieldValue> version;
};

// {"preset": ..., "version": ..., "name": value, ...}; a scorer takes the place of a preset.
// kInvalidArgument where it is no such object, kUnsupported in a build without a JSON parser.
Result<Statement> read_json_recipe(std::string_view text);

}  // namespace precis
