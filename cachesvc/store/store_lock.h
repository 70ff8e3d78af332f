// One opener of a data directory at a time, in whatever process and however it spells the path.
// RocksDB's own lock does not do: within a process it goes by the path's text, and closing the file
// once more, as a second opener does, gives up what the process had.
#pragma once

#include <string>

#include "cachesvc/base/descriptor.h"
#include "precis/status.h"

namespace precis {

// Held until the descriptor is closed, by the end of the process at the latest. Makes the file that
// it locks. kUnavailable where the directory is open already, kPermissionDenied where this process
// may not write to it.
Result<Descriptor> lock_store(const std::string& dir);

}  // namespace precis
