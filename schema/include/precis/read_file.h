// Reads files that a user names: a configuration, a token, a profile.
#pragma once

#include <cstddef>
#include <string>

#include "precis/status.h"

namespace precis {

// The content of `path`. Stops reading soon after `bytes_max` bytes, so an endless file (/dev/zero)
// is an error and not a hang. kNotFound if nothing is there; kInvalidArgument if the path can't be
// read, is a folder or is larger. The message names the path.
Result<std::string> read_file(const std::string& path, std::size_t bytes_max);

}  // namespace precis
