// Files that a person names: a configuration, a token, a profile.
#pragma once

#include <cstddef>
#include <string>

#include "precis/status.h"

namespace precis {

// All of `path`, of at most `bytes_max` bytes: no more is read, so what never ends (/dev/zero) ends
// here. kNotFound where nothing is there, kInvalidArgument where it can't be read, is a folder or
// is larger; the message names the path.
Result<std::string> read_file(const std::string& path, std::size_t bytes_max);

}  // namespace precis
