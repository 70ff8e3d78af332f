// Files named on the command line.
#pragma once

#include <cstddef>
#include <string>

#include "precis/status.h"

namespace precis::cli {

// The content of a file, at most `bytes_max`. Every error is kInvalidArgument, because kNotFound
// would look like an answer of the service.
Result<std::string> read_named(const std::string& path, std::size_t bytes_max);

// Writes `path`.part and renames it to `path`, so that a failure leaves the old content.
Status write_file(const std::string& path, const std::string& text);

}  // namespace precis::cli
