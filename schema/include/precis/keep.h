// How much to keep, as people write it.
#pragma once

#include <string>

#include "precis/types.h"

namespace precis {

// "0.3", "128 entries" per head, "64 MiB" of a segment, "quality 0.95" or "quality 0.95 up to 0.5";
// what Budget::to_string() says, but for "all". kInvalidArgument that names `field` and shows
// these.
Result<Budget> parse_keep(const std::string& text, const std::string& field = "keep");

}  // namespace precis
