// Where a payload value lies, as a row of the store: file, offset and size, little-endian.
#pragma once

#include <array>
#include <optional>

#include "cachesvc/store/extent_files.h"

namespace precis {

using ExtentRow = std::array<std::byte, 20>;

ExtentRow encode_extent(const Extent& extent);
// None where the bytes are no such row. Whether there are such a file and such bytes in it shows
// when they are read.
std::optional<Extent> decode_extent(Bytes row);

}  // namespace precis
