// Client memory that the server moves bulk bytes to or from.
#pragma once

#include <cstdint>
#include <string>

namespace precis {

// Where bytes lie: what a mover can reach differs (cachesvc/transport/mover.h). Values travel.
enum class MemorySpace : std::uint8_t { kHost = 0, kDevice = 1 };

// What the server may pull from or push into while the request that names it is unanswered. The
// client's half of the transport makes it; the server checks each field before it uses it.
struct RemoteRegion {
  std::uint64_t id = 0;  // unique in the client's connection
  std::uint64_t size_bytes = 0;
  MemorySpace space = MemorySpace::kHost;
  // Where the region lies in a memory file that the client has shared (frames.h, kShare).
  std::uint64_t buffer = 0;  // the file's id in the connection; 0: it lies in none
  std::uint64_t buffer_offset = 0;
  std::uint32_t slot = 0;  // its words in the client's window (shared_window.h)
  // For one-sided access by RDMA hardware; empty and 0 without.
  std::string key;
  std::uint64_t address = 0;
  bool operator==(const RemoteRegion&) const = default;
};

}  // namespace precis
