// The low-water mark that an operator configured, where the store keeps more free than that.
#pragma once

#include <cstdint>
#include <optional>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"

namespace precis {

// The bytes that the store keeps free on the disk of config.data_dir, where min_free_bytes is set
// and is less than the rows of that disk need. None where min_free_bytes holds as it stands, or
// where the disk can't be looked at. The directory may be missing: then its parent's disk counts.
std::optional<std::uint64_t> raised_min_free_bytes(const Config& config);

// Says so in the log, if there is such a number.
void warn_of_raised_mark(Log& log, const Config& config);

}  // namespace precis
