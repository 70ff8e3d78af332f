// A folder that only its owner may enter, because its contents are the data of the service's users.
#pragma once

#include <string>

#include "precis/status.h"

namespace precis {

struct MadePrivate {
  bool was_open = false;  // the folder existed and others had access to it
  // The reason that others still have access: the folder belongs to another user, is shared
  // (sticky, as /tmp), or cannot be changed. OK otherwise.
  Status left_open;
};

// Creates `dir` and its parent folders. If `dir` exists, removes the access rights of group and
// others. A failure to create it is not reported here: opening the store reports it.
MadePrivate make_private(const std::string& dir);

}  // namespace precis
