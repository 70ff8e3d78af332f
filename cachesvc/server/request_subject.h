// The object that a request changes, for the log.
#pragma once

#include <string>

#include "precis/messages.h"

namespace precis {

// Returns the object that a request sets or removes: a prefix's id, the name of a session, model or
// profile, or the scope of a budget. Empty for other requests.
std::string subject_of(const msg::RequestBody& request);

}  // namespace precis
