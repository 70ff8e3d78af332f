// Recipes as text: preset, preset(name=value, ...), or a JSON object.
#include <algorithm>
#include <map>
#include <optional>

#include "precis/limits.h"
#include "precis/recipe.h"
#include "presets.h"
#include "recipe_fields.h"
#include "recipe_statement.h"

namespace precis {
namespace {

std::string_view trim(std::string_view s) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = s.find_first_not_of(kSpace);
  if (first == s.npos) return {};
  return s.substr(first, s.find_last_not_of(kSpace) - first + 1);
}

// Reads preset, preset(name=value, ...) or preset(other preset, name=value, ...).
Result<Statement> read_call(std::string_view text) {
  Statement statement;
  const std::size_t open = text.find('(');
  statement.preset = trim(text.substr(0, open));
  if (open == text.npos) return statement;
  if (text.back() != ')') return Status::invalid("the closing ')' is missing");
  std::string_view rest = trim(text.substr(open + 1, text.size() - open - 2));
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = trim(rest.substr(0, comma));
    const std::size_t equals = item.find('=');
    const bool first = statement.given.empty() && statement.base.empty();
    if (equals == item.npos && first && !item.empty()) {
      statement.base = item;
      if (comma == rest.npos) break;
      rest = trim(rest.substr(comma + 1));
      continue;
    }
    if (equals == item.npos) return Status::invalid(in_quotes(item) + " is not name=value");
    statement.given.push_back(
        {std::string(trim(item.substr(0, equals))),
         {FieldValue::Kind::kBare, std::string(trim(item.substr(equals + 1)))}});
    if (comma == rest.npos) break;
    rest = trim(rest.substr(comma + 1));
    if (rest.empty()) return Status::invalid("a parameter is missing after the last ','");
  }
  return statement;
}

// Presets with kvpress's counts exist for comparisons with kvpress, so the message lists them last.
Status unknown_preset(std::string_view name) {
  std::string choices, kvpress;
  for (const Recipe& known : preset_recipes()) {
    std::string& list = known.count_rule == CountRule::kKvpressDouble ? kvpress : choices;
    list += (list.empty() ? "" : ", ") + known.preset;
  }
  return Status::invalid("preset " + in_quotes(name) + " is unknown, choose " + choices +
                         "; to compare with kvpress: " + kvpress);
}

Status unknown_parameter(const Recipe& recipe, std::string_view name) {
  std::string usable;
  bool exists = false;
  for (const RecipeField& field : recipe_fields()) {
    exists = exists || field.name == name;
    if (field.applies(recipe)) usable += (usable.empty() ? "" : ", ") + std::string(field.name);
  }
  return Status::invalid("parameter " + in_quotes(name) +
                         (exists ? " has no meaning in this recipe" : " is unknown") +
                         ", choose from " + usable);
}

const RecipeField* find_field(std::string_view name) {
  const auto found = std::ranges::find(recipe_fields(), name, &RecipeField::name);
  return found == recipe_fields().end() ? nullptr : &*found;
}

const Recipe* find_preset(std::string_view name) {
  const auto found = std::ranges::find(preset_recipes(), name, &Recipe::preset);
  return found == preset_recipes().end() ? nullptr : &*found;
}

Result<Recipe> base_recipe(const Statement& statement) {
  if (statement.preset.empty()) {
    const auto scorer = std::ranges::find(statement.given, "scorer", &Statement::Given::name);
    if (scorer == statement.given.end()) {
      return Status::invalid("names neither a preset nor a scorer");
    }
    Recipe named;
    PRECIS_TRY(find_field("scorer")->set(named, scorer->value).with_context("scorer"));
    return scorer_defaults(named.scorer);
  }
  const Recipe* preset = find_preset(statement.preset);
  if (preset == nullptr) return unknown_preset(statement.preset);
  if (statement.base.empty()) return *preset;
  const Recipe* base = find_preset(statement.base);
  if (base == nullptr) return unknown_preset(statement.base);
  PRECIS_ASSIGN(Recipe built, build_on(*preset, *base));
  built.preset = statement.preset + "(" + statement.base + ")";
  return built;
}

// Sets the given parameters, then those that depend on them.
Status apply(const Statement& statement, Recipe& recipe) {
  std::vector<const RecipeField*> set;
  for (const auto& [name, value] : statement.given) {
    const RecipeField* field = find_field(name);
    if (field == nullptr) return unknown_parameter(recipe, name);
    if (std::ranges::find(set, field) != set.end()) {
      return Status::invalid(in_quotes(name) + " is given twice");
    }
    set.push_back(field);
    PRECIS_TRY(field->set(recipe, value).with_context(name));
  }
  for (const RecipeField& field : recipe_fields()) {
    const bool given = std::ranges::find(set, &field) != set.end();
    if (field.applies(recipe)) {
      // Without `recent`, the window's own tokens are protected.
      const bool follows_window = field.name == "recent" && protects_window(recipe.scorer);
      if (follows_window && !given) recipe.recent = recipe.window;
    } else if (given) {
      return unknown_parameter(recipe, field.name);
    } else {
      PRECIS_TRY(field.set(recipe, {FieldValue::Kind::kBare, field.text(Recipe{})}));
    }
  }
  recipe.protect_tail = recipe.is_partitioned();
  return {};
}

Result<Recipe> parse(std::string_view text) {
  PRECIS_ASSIGN(const Statement statement,
                text.starts_with('{') ? read_json_recipe(text) : read_call(text));
  if (statement.version && statement.version->text != std::to_string(kRecipeVersion)) {
    return Status::version("version is " + statement.version->text + ", this build knows " +
                           std::to_string(kRecipeVersion));
  }
  PRECIS_ASSIGN(Recipe recipe, base_recipe(statement));
  PRECIS_TRY(apply(statement, recipe));
  PRECIS_TRY(validate_recipe(recipe));
  return recipe;
}

}  // namespace

Result<Recipe> parse_recipe(std::string_view text) {
  text = trim(text);
  if (text.empty()) return Status::invalid("recipe is empty");
  if (text.size() > limits::kRecipeBytesMax) {
    return Status::invalid("recipe has " + std::to_string(text.size()) + " bytes, maximum " +
                           std::to_string(limits::kRecipeBytesMax));
  }
  Result<Recipe> recipe = parse(text);
  if (recipe.ok()) return recipe;
  return recipe.status().with_context("recipe " + in_quotes(text));
}

Result<const Recipe*> stored_recipe(const std::string& text) {
  thread_local std::string known;
  thread_local std::optional<Recipe> recipe;
  if (!recipe || known != text) {
    recipe.reset();
    PRECIS_ASSIGN(recipe, parse_recipe(text));
    known = text;
  }
  return &*recipe;
}

std::string recipe_call(const std::string& canonical, const std::string& preset) {
  const auto recipe = parse_recipe(canonical);
  const auto plain = parse_recipe(preset);
  if (!recipe.ok() || !plain.ok()) return canonical;
  std::string differences;
  for (const RecipeField& field : recipe_fields()) {
    const std::string text = field.text(*recipe);
    if (!field.applies(*recipe) || text == field.text(*plain)) continue;
    if (field.name == "recent" && protects_window(recipe->scorer) &&
        recipe->recent == recipe->window) {
      continue;  // implied by window
    }
    differences += (differences.empty() ? "" : ", ") + std::string(field.name) + "=" + text;
  }
  if (differences.empty()) return preset;
  // "criticalkv(tova)" already has brackets.
  const bool built_on = preset.back() == ')';
  return (built_on ? preset.substr(0, preset.size() - 1) + ", " : preset + "(") + differences + ")";
}

std::string canonical_recipe(const Recipe& recipe) {
  std::map<std::string_view, std::string> fields{{"version", std::to_string(kRecipeVersion)}};
  for (const RecipeField& field : recipe_fields()) {
    if (!field.applies(recipe)) continue;
    const std::string text = field.text(recipe);
    if (field.is_optional && text == field.text(Recipe{})) continue;
    fields[field.name] = field.is_word ? "\"" + text + "\"" : text;
  }
  std::string json;
  for (const auto& [name, text] : fields) {
    json += (json.empty() ? "{\"" : ",\"") + std::string(name) + "\":" + text;
  }
  return json + "}";
}

}  // namespace precis
