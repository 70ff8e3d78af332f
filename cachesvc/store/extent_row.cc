#include "cachesvc/store/extent_row.h"

#include <cstring>

#include "cachesvc/store/files.h"

namespace precis {

ExtentRow encode_extent(const Extent& extent) {
  ExtentRow row;
  std::memcpy(row.data(), &extent.file, 4);
  std::memcpy(row.data() + 4, &extent.offset, 8);
  std::memcpy(row.data() + 12, &extent.size, 8);
  return row;
}

std::optional<Extent> decode_extent(Bytes row) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 48;  // so sums do not overflow
  Extent extent;
  if (row.size() != sizeof(ExtentRow)) return std::nullopt;
  std::memcpy(&extent.file, row.data(), 4);
  std::memcpy(&extent.offset, row.data() + 4, 8);
  std::memcpy(&extent.size, row.data() + 12, 8);
  if (extent.offset > kMost || extent.size > kMost || extent.offset % kFileBlockBytes != 0) {
    return std::nullopt;
  }
  return extent;
}

}  // namespace precis
