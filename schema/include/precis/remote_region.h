// Client memory that bulk bytes are moved to or from.
#pragma once

#include <cstdint>
#include <string>

namespace precis {

// What the server may pull from or push into while the request that names it is unanswered. Made by
// the client's transport; opaque but for its size.
struct RemoteRegion {
  std::uint64_t id = 0;       // unique in the client's connection
  std::uint64_t address = 0;  // in the client's address space
  std::uint64_t size_bytes = 0;
  std::string key;  // the transport's access key, empty where it has none
  bool operator==(const RemoteRegion&) const = default;
};

}  // namespace precis
