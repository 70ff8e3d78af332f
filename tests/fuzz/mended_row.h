// Recomputes a row's checksum. A mutated row fails its checksum, so targets also try it with a
// correct checksum.
#pragma once

#include <vector>

#include "precis/view.h"

namespace precis::fuzz {

// The row with the checksum of its current content (schema/catalog.capnp describes the frame).
std::vector<std::byte> mended_row(Bytes row);

}  // namespace precis::fuzz
