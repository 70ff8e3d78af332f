// Replies as JSON (schema/json/message_json.h), and what only precisctl prints.
#pragma once

#include "client/cli/render.h"
#include "schema/json/message_json.h"

namespace precis::cli {

using message_json::field_json;
using message_json::Json;
using message_json::json_line;
using message_json::json_text;
using message_json::parse_json;
using message_json::rows_json;
using message_json::to_json;

Json to_json(const ModelBudgets& of_model);

}  // namespace precis::cli
