// Memory that a client moves bytes from and to: the caller's, or pages of the transport's own.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/src/transport/client_regions.h"
#include "client/src/transport/client_transport.h"

namespace precis {

// Any thread.
class ClientMemory final : public Registration {
 public:
  // `device` may be null.
  ClientMemory(MutableBytes bytes, std::shared_ptr<RdmaDevice> device)
      : bytes_(bytes), device_(std::move(device)) {}
  ClientMemory(std::unique_ptr<Pages> pages, std::shared_ptr<RdmaDevice> device);
  ~ClientMemory() override;
  MutableBytes bytes() const override { return bytes_; }

  // Tells in `region` where `part` is for a server that has mapped the memory or reaches it by
  // RDMA. For any other server `buffer` stays 0 and `key` empty.
  void locate(const std::shared_ptr<ClientRegions>& regions, MutableBytes part,
              RemoteRegion& region);

 private:
  // The memory's RDMA key. The first call registers the memory; not earlier, because that takes
  // time and pins the memory. Empty if it cannot be registered, for example because of a limit on
  // locked memory.
  std::string rdma_key();

  const MutableBytes bytes_;
  const std::unique_ptr<Pages> pages_;
  const std::uint64_t buffer_ = 0;
  const std::shared_ptr<RdmaDevice> device_;
  std::mutex mutex_;
  // The connections whose server was asked to map the memory. Guarded by mutex_, as all below.
  std::vector<std::weak_ptr<ClientRegions>> asked_;
  bool tried_rdma_ = false;
  std::unique_ptr<RdmaMemory> rdma_;
};

std::unique_ptr<Exposure> expose_memory(std::shared_ptr<ClientRegions> regions,
                                        ClientMemory& memory, MutableBytes part);

}  // namespace precis
