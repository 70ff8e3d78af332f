// Files that other users of the machine could read: closed to them, or warned of, at the start.
#pragma once

#include <string>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"

namespace precis {

// Makes the data directory its owner's alone (private_dir.h); says so where it was not, and warns
// where it can't be.
void close_data_dir(Log& log, const std::string& dir);

// A warning for each file that holds tokens and that everybody may read.
void warn_of_exposed_tokens(Log& log, const Config& config);

}  // namespace precis
