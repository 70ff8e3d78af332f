// Replaces recipe_json.cc if the build finds no JSON parser.
#include "recipe_statement.h"

namespace precis {

Result<Statement> read_json_recipe(std::string_view) {
  return Status::unsupported(
      "recipes as JSON are not in this build; write preset(name=value, ...)");
}

}  // namespace precis
