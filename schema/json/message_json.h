// Messages as JSON, for scripts and for the admin port: raw numbers, full ids, stable keys. Only
// programs of this project include it: it names the JSON library.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "precis/messages.h"

namespace precis::message_json {

using Json = nlohmann::ordered_json;

// The printed form. Names may be invalid UTF-8: invalid bytes are replaced and are not an error.
std::string json_text(const Json& json);
std::string json_line(const Json& json);  // in one line, without its end

// Parses JSON from a service or a file. Returns a discarded value if the text is invalid, if an
// object has a key twice, or if the text is nested deeper, or has more keys, than any JSON of
// Precis: printing deep JSON needs a deep stack.
Json parse_json(const std::string& text);

// {"kind": "ratio" | "entries" | "bytes" | "all" | "byte_share" | "loss", "value": number or
// null}; null if there is no budget.
Json to_json(const std::optional<Budget>& budget);
Json to_json(const ModelSpec& model);

// A field of a row: ids and digests in hex, null for the null id; recipes and profiles as JSON
// objects if their text is JSON.
Json field_json(std::string_view name, const std::string& text);
Json field_json(std::string_view name, const SegmentId& id);
Json field_json(std::string_view name, const Digest& digest);
Json field_json(std::string_view name, Encoding encoding);
Json field_json(std::string_view name, const Budget& budget);
Json field_json(std::string_view name, const std::optional<Budget>& budget);
Json field_json(std::string_view name, const std::optional<Plan>& plan);
Json field_json(std::string_view name, const std::optional<Digest>& digest);
template <typename Number>
requires std::is_arithmetic_v<Number> Json field_json(std::string_view, Number number) {
  return number;
}
template <typename Number>
requires std::is_arithmetic_v<Number> Json field_json(std::string_view,
                                                      const std::optional<Number>& number) {
  return number ? Json(*number) : Json();
}

template <typename Row>
requires requires { Fields<Row>::all; }
Json to_json(const Row& row);
// Rows within a row, and lists of rows or numbers.
template <typename Row>
requires requires { Fields<Row>::all; }
Json field_json(std::string_view, const Row& row) { return to_json(row); }
template <typename Item>
Json field_json(std::string_view name, const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(field_json(name, item));
  return list;
}

// A row with all its fields. The field `budget` is called "keep" and `json` "profile". Fields that
// the request did not ask for are left out.
template <typename Row>
requires requires { Fields<Row>::all; }
Json to_json(const Row& row) {
  Json json = Json::object();
  for_each_field(row, [&](std::string_view name, const auto& value) {
    Json field = field_json(name, value);
    if (field.is_discarded()) return;
    json[name == "budget" ? "keep"
         : name == "json" ? "profile"
                          : std::string(name)] = std::move(field);
  });
  return json;
}
Json to_json(const msg::ModelRow& row);  // with the fields of its model
Json to_json(const msg::BudgetRow& row);
Json to_json(const msg::Budgets& budgets);
Json to_json(const msg::KvEvent& event);  // with the fields that its kind has
Json to_json(const msg::Stats& stats);    // {name: value}

template <typename Row>
Json rows_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(to_json(row));
  return list;
}

}  // namespace precis::message_json
