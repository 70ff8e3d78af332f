// Files named on the command line.
#pragma once

#include <string>

#include "precis/status.h"

namespace precis::cli {

// Through a file beside it, so that a failure leaves what was there.
Status write_file(const std::string& path, const std::string& text);

}  // namespace precis::cli
