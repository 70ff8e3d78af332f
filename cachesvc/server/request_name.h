// Requests as the log calls them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "precis/requests.h"

namespace precis {

struct RequestName {
  std::string_view name;  // of its struct, as "SetBudget"
  // Whether it sets or takes away what an operator answers for: the log has it at the info level,
  // done or refused.
  bool administrative = false;
};

// `index`: of the request's type in msg::RequestBody.
RequestName request_name(std::size_t index);

// The name or id of the thing that a request sets or takes away: a prefix's id, the name of a
// session, model or profile. Empty for other requests.
std::string subject_of(const msg::RequestBody& request);

}  // namespace precis
