// Recipes as JSON objects.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "recipe_statement.h"

namespace precis {
namespace {

Result<FieldValue> json_value(const std::string& name, const nlohmann::json& value) {
  if (value.is_string()) return FieldValue{FieldValue::Kind::kString, value.get<std::string>()};
  if (value.is_number()) return FieldValue{FieldValue::Kind::kNumber, value.dump()};
  if (value.is_boolean()) return FieldValue{FieldValue::Kind::kBoolean, value.dump()};
  return Status::invalid(in_quotes(name) + " is " + value.type_name() +
                         ", must be a string, a number or true or false");
}

}  // namespace

Result<Statement> read_json_recipe(std::string_view text) {
  // Depth 1 is the object itself. The parser alone would silently keep only one of two equal names.
  std::vector<std::string> names;
  const auto keep_names = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& key) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1) names.push_back(key);
    return true;
  };
  const nlohmann::json object = nlohmann::json::parse(text, keep_names, /*allow_exceptions=*/false);
  if (!object.is_object()) return Status::invalid("is not a JSON object");
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
    return Status::invalid(in_quotes(*twice) + " is given twice");
  }
  Statement statement;
  for (const auto& [name, value] : object.items()) {
    PRECIS_ASSIGN(FieldValue field, json_value(name, value));
    if (name == "preset") {
      statement.preset = field.text;
    } else if (name == "version") {
      statement.version = field;
    } else {
      statement.given.push_back({name, std::move(field)});
    }
  }
  return statement;
}

}  // namespace precis
