// Client memory that the server moves bulk bytes to or from.
#pragma once

#include <cstdint>
#include <string>

namespace precis {

// A kind of memory. Movers differ in what they reach (cachesvc/transport/mover.h). Values travel.
enum class MemorySpace : std::uint8_t { kHost = 0, kDevice = 1 };

// The server may pull from it or push into it while the request that names it is unanswered. The
// client's half of the transport makes it; the server checks each field before it uses it.
struct RemoteRegion {
  std::uint64_t id = 0;  // unique in the client's connection
  std::uint64_t size_bytes = 0;
  MemorySpace space = MemorySpace::kHost;
  // The region's place in a memory file that the client has shared (frames.h, kShare).
  std::uint64_t buffer = 0;  // the file's id in the connection; 0: it lies in none
  std::uint64_t buffer_offset = 0;
  std::uint32_t slot = 0;  // its words in the client's window (shared_window.h)
  // For one-sided access by RDMA hardware; empty and 0 without.
  std::string key;
  std::uint64_t address = 0;
  bool operator==(const RemoteRegion&) const = default;
};

}  // namespace precis
