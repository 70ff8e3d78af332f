// Replies as JSON for scripts: raw numbers, full ids, keys that stay as they are.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "precis/messages.h"

namespace precis::cli {

using Json = nlohmann::ordered_json;

struct ModelBudgets;  // render.h

// As it is printed. Names need not be UTF-8: what is not is replaced, never a reason to fail.
std::string json_text(const Json& json);

// JSON that a service or a file gave; discarded where it is none, or where it is nested deeper than
// anything of ours: printing that would take a stack as deep.
Json parse_json(const std::string& text);

// {"kind": "ratio" | "entries" | "bytes" | "all", "value": number or null}; null for none.
Json to_json(const std::optional<Budget>& budget);
Json to_json(const msg::ModelRow& row);
Json to_json(const msg::SegmentInfo& row);
Json to_json(const msg::SessionRow& row);
Json to_json(const msg::BudgetRow& row);
Json to_json(const msg::Budgets& budgets);
Json to_json(const ModelBudgets& of_model);
Json to_json(const msg::ServerStatus& status);
Json to_json(const msg::Removed& removed);
// With its own JSON as "profile", where it is there.
Json to_json(const msg::ProfileRow& row);
Json to_json(const msg::Stats& stats);  // {name: value}

template <typename Row>
Json rows_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(to_json(row));
  return list;
}

}  // namespace precis::cli
