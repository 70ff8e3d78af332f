// The names of requests in the log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "precis/requests.h"

namespace precis {

struct RequestName {
  std::string_view name;  // of its struct, for example "SetBudget"
  // Whether it changes or removes something that an operator is responsible for. The log has it at
  // info level, both done and refused.
  bool administrative = false;
};

// `index`: the index of the request's type in msg::RequestBody.
RequestName request_name(std::size_t index);

// Returns the name or id of the object that a request changes or removes: a prefix's id, or the
// name of a session, model or profile. Empty for other requests.
std::string subject_of(const msg::RequestBody& request);

}  // namespace precis
