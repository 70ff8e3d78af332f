// The parameters of a request, from the fields of its message. A parameter has its field's name;
// the field `budget` is called "keep" and `json` "profile", as in the JSON of replies. Fields of a
// struct within the message are parameters too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "precis/messages.h"
#include "schema/json/message_json.h"

namespace precis::admin {

using message_json::Json;

struct Parameter {
  std::string name;
  Json schema;  // its JSON schema
};
// The parameters, in the order of the fields.
std::vector<Parameter> parameters_of(const msg::RequestBody& request);

// Sets fields from an object of parameters. A value may also be written as a string, as in a query.
// A model or segment is its id in hexadecimal digits, a budget is as `precisctl --keep` has it or
// as replies have it. null unsets a default. kInvalidArgument names the parameter that is unknown
// or wrong.
Status set_parameters(msg::RequestBody& request, const Json& values);

// Cursors of lists are bytes; their JSON is hexadecimal digits.
std::string cursor_hex(std::string_view cursor);

}  // namespace precis::admin
