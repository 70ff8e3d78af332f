// The place of a payload value as a stored row: file, offset and size, little-endian.
#pragma once

#include <array>
#include <optional>

#include "cachesvc/store/payload_store.h"

namespace precis {

using ExtentRow = std::array<std::byte, 20>;

ExtentRow encode_extent(const Extent& extent);
// None if the bytes are no such row. Does not check that the file and the bytes exist; reading
// does.
std::optional<Extent> decode_extent(Bytes row);

}  // namespace precis
