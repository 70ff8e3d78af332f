// Replies as JSON for scripts: raw numbers, full ids, stable keys.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "precis/messages.h"

namespace precis::cli {

using Json = nlohmann::ordered_json;

struct ModelBudgets;  // render.h

// The printed form. Names need not be UTF-8: invalid bytes are replaced and are never an error.
std::string json_text(const Json& json);

// Parses JSON from a service or a file. Discarded if it is invalid, or nested deeper than any JSON
// of ours: printing it would need a stack as deep.
Json parse_json(const std::string& text);

// {"kind": "ratio" | "entries" | "bytes" | "all" | "quality", "value": number or null}, "cap" as
// well for "quality"; null for none.
Json to_json(const std::optional<Budget>& budget);
Json to_json(const msg::ModelRow& row);
Json to_json(const msg::SegmentInfo& row);
Json to_json(const msg::SessionRow& row);
Json to_json(const msg::BudgetRow& row);
Json to_json(const msg::Budgets& budgets);
Json to_json(const ModelBudgets& of_model);
Json to_json(const msg::ServerStatus& status);
Json to_json(const msg::Removed& removed);
// With the profile's own JSON as "profile", if the row has it.
Json to_json(const msg::ProfileRow& row);
Json to_json(const msg::Stats& stats);  // {name: value}

template <typename Row>
Json rows_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(to_json(row));
  return list;
}

}  // namespace precis::cli
