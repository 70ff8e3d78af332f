// Compares the configured min_free_bytes with the space that the store keeps free.
#pragma once

#include <cstdint>
#include <optional>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"

namespace precis {

// Returns the bytes that the store keeps free on the disk of config.data_dir, if min_free_bytes is
// set and is less than the rows need on that disk. Returns none if min_free_bytes is used
// unchanged, or the disk cannot be examined. If the directory is missing, its parent's disk counts.
std::optional<std::uint64_t> raised_min_free_bytes(const Config& config);

// Logs a warning if raised_min_free_bytes() returns a number.
void warn_of_raised_mark(Log& log, const Config& config);

}  // namespace precis
