// Files named on the command line.
#pragma once

#include <string>

#include "precis/status.h"

namespace precis::cli {

// Writes `path`.part and renames it to `path`, so that a failure leaves the old content.
Status write_file(const std::string& path, const std::string& text);

}  // namespace precis::cli
