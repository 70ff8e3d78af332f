// The OpenAPI description of the API, made from the table of its routes.
#pragma once

#include <string>

namespace precis::admin {

std::string openapi_json();

}  // namespace precis::admin
