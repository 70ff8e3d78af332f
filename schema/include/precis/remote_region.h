// Client memory that the server moves bulk bytes to or from.
#pragma once

#include <cstdint>
#include <string>

namespace precis {

// A kind of memory. Movers reach different kinds (cachesvc/transport/mover.h). Values are sent to
// peers.
enum class MemorySpace : std::uint8_t { kHost = 0, kDevice = 1 };

// The server may read or write the region while the request that names it is unanswered. The
// client's transport fills in the fields; the server checks each field before use.
struct RemoteRegion {
  std::uint64_t id = 0;  // unique within the connection
  std::uint64_t size_bytes = 0;
  MemorySpace space = MemorySpace::kHost;
  // The region's place in a memory file that the client has shared (frames.h, kShare).
  std::uint64_t buffer = 0;  // the file's id in the connection; 0: in no file
  std::uint64_t buffer_offset = 0;
  std::uint32_t slot = 0;  // index of its words in the client's window (shared_window.h)
  // For one-sided access by RDMA hardware; otherwise empty and 0.
  std::string key;
  std::uint64_t address = 0;
  bool operator==(const RemoteRegion&) const = default;
};

}  // namespace precis
