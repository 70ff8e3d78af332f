// One-sided access to a peer's memory by RDMA hardware, which checks a key for every access. UCX
// does not appear here: uct_*.{h,cc} use it, and no_rdma.cc replaces them in a build without UCX.
//
// It uses UCX's lower half (UCT) with one reliable connection (`rc`) per peer; the peers exchange
// their addresses over the admitted control stream. UCX's upper half (UCP) is not safe: its workers
// answer reads and writes of any address, without a key, from anyone on the fabric, and they parse
// messages of peers that are not admitted. Here, only admitted peers have queue pairs, and no queue
// pair serves memory without its key.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cachesvc/base/event_loop.h"
#include "precis/remote_region.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// The address of an RdmaPeer, in bytes that only UCX interprets.
struct RdmaAddress {
  std::string device, endpoint;
};

// Memory registered with the hardware until this object is destroyed, which must be before its
// device.
class RdmaMemory {
 public:
  virtual ~RdmaMemory() = default;
  virtual const std::string& key() const = 0;  // for peers
};

// A peer's memory, from a start address on.
struct RdmaRemote {
  std::uint64_t address;
  const std::string& key;
};

// One connection. It closes when its last owner releases it, which must be before the device is
// destroyed.
class RdmaPeer {
 public:
  // Called once, on the loop's thread, and never inside the call that received it. kUnavailable if
  // the peer is gone or its hardware refused the key, which ends the connection.
  using Done = std::function<void(Status)>;
  virtual ~RdmaPeer() = default;
  virtual const RdmaAddress& address() const = 0;
  // kInvalidArgument for an address that cannot be reached from here. The address may have any
  // bytes.
  virtual Status connect(const RdmaAddress& peer) = 0;

  // Only for a device with a loop, on its thread. The memory must live until `done`. The peer sees
  // the operations in the order of their calls. When a put ends, its bytes have reached the peer's
  // hardware; a get posted after it finds them in the peer's memory.
  virtual void get(MutableBytes into, const RdmaMemory& local, RdmaRemote from, Done done) = 0;
  virtual void put(Bytes from, const RdmaMemory& local, RdmaRemote to, Done done) = 0;
  // Any thread. When it returns, the peer can access nothing through this connection. Operations of
  // this side soon end with an error.
  virtual void close() = 0;
};

class RdmaDevice {
 public:
  // Opens the device that the setting `rdma` of precisd or the client selects. Null if it is "off",
  // or "auto" on a host without a device in /sys/class/infiniband: then UCX is not loaded. A list
  // names devices ("mlx5_0" or "mlx5_0:1, mlx5_1:1"); the first working one is used, kUnsupported
  // if none works. `loop` drives the operations that this side begins; null: this side only
  // answers.
  static Result<std::unique_ptr<RdmaDevice>> open(EventLoop* loop, const std::string& choice);
  // For tests: UCX's copy between processes, which checks no keys. No setting selects it.
  static Result<std::unique_ptr<RdmaDevice>> open_software(EventLoop* loop);
  virtual ~RdmaDevice() = default;

  // Any thread, as make_peer(). kUnsupported for memory that the device cannot access.
  virtual Result<std::unique_ptr<RdmaMemory>> register_memory(MutableBytes memory,
                                                              MemorySpace space) = 0;
  virtual Result<std::shared_ptr<RdmaPeer>> make_peer() = 0;
  virtual bool reaches(MemorySpace space) const = 0;
  virtual std::size_t transfer_bytes_max() const = 0;  // of one get or put
  // For users: "rc_mlx5 on mlx5_0:1, host memory (libuct.so.0.0.0 of UCX 1.13)".
  virtual const std::string& description() const = 0;
};

}  // namespace precis
