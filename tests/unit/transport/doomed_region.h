// The message in which transport_doomed_peer describes its memory to the test that kills it.
#pragma once

#include <vector>

#include "precis/little_endian.h"
#include "precis/remote_region.h"

namespace precis::test {

inline constexpr std::size_t kDoomedBytes = 256u << 20;

inline std::vector<std::byte> encode_doomed_region(const RemoteRegion& region) {
  std::vector<std::byte> bytes;
  put_le(bytes, region.id);
  put_le(bytes, region.size_bytes);
  put_le(bytes, region.buffer);
  put_le(bytes, region.buffer_offset);
  put_le(bytes, region.slot);
  return bytes;
}

inline RemoteRegion decode_doomed_region(Bytes bytes) {
  LeReader reader(bytes);
  RemoteRegion region;
  region.id = reader.get<std::uint64_t>();
  region.size_bytes = reader.get<std::uint64_t>();
  region.buffer = reader.get<std::uint64_t>();
  region.buffer_offset = reader.get<std::uint64_t>();
  region.slot = reader.get<std::uint32_t>();
  return region;
}

}  // namespace precis::test
