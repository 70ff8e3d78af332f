// The client's half of RDMA: one connection that the server reaches this side's memory by. It only
// answers, by its hardware; what it can end is the whole connection.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "cachesvc/net/rdma/rdma.h"
#include "precis/greeting.h"

namespace precis {

class ClientRdma {
 public:
  // Null where the device has no connection to give.
  static std::unique_ptr<ClientRdma> make(std::shared_ptr<RdmaDevice> device);
  ClientRdma(std::shared_ptr<RdmaDevice> device, std::unique_ptr<RdmaPeer> peer)
      : device_(std::move(device)), peer_(std::move(peer)) {}

  RdmaTurn offer() const;  // the client's first turn
  // The turn after the server's answer. From now on the server may reach `window`, which outlives
  // this, and registered memory. kUnavailable where it does not want to.
  Result<RdmaTurn> join(const RdmaTurn& answer, MutableBytes window);
  // Any thread.
  bool is_joined() const { return joined_.load(); }
  bool is_closed() const { return closed_.load(); }  // true once the server reaches nothing
  void close();

 private:
  const std::shared_ptr<RdmaDevice> device_;  // shared with registered memory
  std::unique_ptr<RdmaMemory> window_;
  const std::unique_ptr<RdmaPeer> peer_;
  std::atomic<bool> joined_{false}, closed_{false};
};

// Memory that is registered when a server first asks for it: that takes time and pins it. Any
// thread.
class RdmaRegistered {
 public:
  RdmaRegistered(std::shared_ptr<RdmaDevice> device, MutableBytes bytes)
      : device_(std::move(device)), bytes_(bytes) {}
  // Empty where it can't be registered: a limit on locked memory, say.
  std::string key();

 private:
  const std::shared_ptr<RdmaDevice> device_;
  const MutableBytes bytes_;
  std::mutex mutex_;
  bool tried_ = false;  // guarded by mutex_, as all below
  std::unique_ptr<RdmaMemory> memory_;
};

}  // namespace precis
