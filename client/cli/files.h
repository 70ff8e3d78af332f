// Files named on the command line.
#pragma once

#include <string>

#include "precis/status.h"

namespace precis::cli {

// Writes a temporary file beside it and renames that, so that a failure keeps the old content.
Status write_file(const std::string& path, const std::string& text);

}  // namespace precis::cli
