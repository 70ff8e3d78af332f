// Memory that the transport allocates and the caller fills. A push from this memory finds its
// registration here instead of registering it again.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "client/src/transport/client_transport.h"
#include "precis/client.h"

namespace precis {

// Thread-safe.
class HostMemory {
 public:
  // `keep_alive` owns the transport: buffers may outlive the client.
  HostMemory(std::shared_ptr<void> keep_alive, ClientTransport& transport)
      : keep_alive_(std::move(keep_alive)), transport_(transport) {}

  // As Client::allocate().
  Result<std::shared_ptr<HostBuffer>> allocate(std::size_t size_bytes);
  // The registration that contains all of `memory`; null if `memory` was not allocated here.
  std::shared_ptr<Registration> find(Bytes memory) const;

 private:
  const std::shared_ptr<void> keep_alive_;  // shared with the buffers
  ClientTransport& transport_;
  mutable std::mutex mutex_;
  // Keyed by the address of the first byte; guarded by mutex_.
  std::map<const std::byte*, std::weak_ptr<Registration>> buffers_;
};

}  // namespace precis
