// Stands for recipe_json.cc where no JSON parser was found.
#include "recipe_statement.h"

namespace precis {

Result<Statement> read_json_recipe(std::string_view) {
  return Status::unsupported(
      "recipes as JSON are not in this build; write preset(name=value, ...)");
}

}  // namespace precis
