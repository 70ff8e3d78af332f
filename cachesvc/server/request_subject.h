// The thing that a request changes, for the log.
#pragma once

#include <string>

#include "precis/messages.h"

namespace precis {

// The name or id of the thing that a request sets or takes away: a prefix's id, the name of a
// session, model or profile. Empty for other requests.
std::string subject_of(const msg::RequestBody& request);

}  // namespace precis
