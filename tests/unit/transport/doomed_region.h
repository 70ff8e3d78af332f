// How transport_doomed_peer names its memory to the test that kills it.
#pragma once

#include <vector>

#include "cachesvc/transport/little_endian.h"
#include "precis/messages.h"

namespace precis::test {

inline constexpr std::size_t kDoomedBytes = 256u << 20;

inline std::vector<std::byte> encode_doomed_region(const RemoteRegion& region) {
  std::vector<std::byte> bytes;
  put_le(bytes, region.id);
  put_le(bytes, region.address);
  put_le(bytes, region.size_bytes);
  put_bytes(bytes, std::as_bytes(std::span(region.key)));
  return bytes;
}

inline RemoteRegion decode_doomed_region(Bytes bytes) {
  LeReader reader(bytes);
  RemoteRegion region;
  region.id = reader.get<std::uint64_t>();
  region.address = reader.get<std::uint64_t>();
  region.size_bytes = reader.get<std::uint64_t>();
  region.key.assign(reinterpret_cast<const char*>(reader.rest().data()), reader.rest().size());
  return region;
}

}  // namespace precis::test
