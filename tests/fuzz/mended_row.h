// A mutated row fails its checksum at once, so targets also try it with the checksum mended.
#pragma once

#include <vector>

#include "precis/view.h"

namespace precis::fuzz {

// The row with the checksum of what it is now (schema/catalog.capnp draws the frame).
std::vector<std::byte> mended_row(Bytes row);

}  // namespace precis::fuzz
