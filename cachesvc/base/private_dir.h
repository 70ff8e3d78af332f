// A folder that its owner alone may enter: what lies in it is what users of a service said.
#pragma once

#include <string>

#include "precis/status.h"

namespace precis {

struct MadePrivate {
  bool was_open = false;  // it was there, and others had rights to it
  // Why they still have: the folder is another user's, is shared (sticky, as /tmp), or can't be
  // changed. Ok otherwise.
  Status left_open;
};

// Makes `dir` with the folders above it, or takes the rights of group and others away where it is
// there already. It reports no failure to make it: opening the store does.
MadePrivate make_private(const std::string& dir);

}  // namespace precis
