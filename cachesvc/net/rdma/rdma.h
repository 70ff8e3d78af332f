// One-sided access to a peer's memory by RDMA hardware, which checks a key for each of its own
// accesses. No UCX in sight: uct_*.{h,cc} beside this has it, and no_rdma.cc stands in its place in
// a build without.
//
// It is UCX's lower half (UCT) with one reliable connection (`rc`) for each peer, whose addresses
// travel over the admitted control stream. UCX's upper half (UCP) would not do: its workers answer
// reads and writes of any address, without a key, for whoever reaches them on the fabric, and
// parse what strangers send. Here no queue pair exists but those of admitted peers, and none of
// them answers what is not under a key.
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

// How a peer reaches an RdmaPeer; bytes that only UCX reads.
struct RdmaAddress {
  std::string device, endpoint;
};

// Memory that the hardware knows, until destroyed; before its device.
class RdmaMemory {
 public:
  virtual ~RdmaMemory() = default;
  virtual const std::string& key() const = 0;  // for peers
};

// A peer's memory, from some byte on.
struct RdmaRemote {
  std::uint64_t address;
  const std::string& key;
};

// One connection. It closes with its last owner, who goes before its device.
class RdmaPeer {
 public:
  // Runs once, on the loop's thread, never inside the call that was given it. kUnavailable where
  // the peer is gone or its hardware refused the key, which ends the connection.
  using Done = std::function<void(Status)>;
  virtual ~RdmaPeer() = default;
  virtual const RdmaAddress& address() const = 0;
  // kInvalidArgument for an address that can't be reached from here. Believes nothing else of it.
  virtual Status connect(const RdmaAddress& peer) = 0;

  // Only of a device with a loop, on its thread. Memory must live until `done`. In the order of
  // their calls as the peer sees them; a put is with the peer's hardware when it ends, and in its
  // memory for a get that is posted after it.
  virtual void get(MutableBytes into, const RdmaMemory& local, RdmaRemote from, Done done) = 0;
  virtual void put(Bytes from, const RdmaMemory& local, RdmaRemote to, Done done) = 0;
  // Any thread. The peer reaches nothing through it once this returns. What this side has under way
  // ends with an error, soon.
  virtual void close() = 0;
};

class RdmaDevice {
 public:
  // By precisd's and the client's setting `rdma`: null where it is "off", or "auto" and this host
  // has no device in /sys/class/infiniband: then nothing of UCX is loaded. A list names devices
  // ("mlx5_0" or "mlx5_0:1, mlx5_1:1"), of which the first that works is taken; kUnsupported where
  // none does. `loop` drives what this side begins; null: it only answers.
  static Result<std::unique_ptr<RdmaDevice>> open(EventLoop* loop, const std::string& choice);
  // For tests: the kernel's copy between processes, which checks no keys. No setting reaches it.
  static Result<std::unique_ptr<RdmaDevice>> open_software(EventLoop* loop);
  virtual ~RdmaDevice() = default;

  // Any thread, as make_peer(). kUnsupported for memory that the device can't reach.
  virtual Result<std::unique_ptr<RdmaMemory>> register_memory(MutableBytes memory,
                                                              MemorySpace space) = 0;
  virtual Result<std::shared_ptr<RdmaPeer>> make_peer() = 0;
  virtual bool reaches(MemorySpace space) const = 0;
  virtual std::size_t transfer_bytes_max() const = 0;  // of one get or put
  // For people: "rc_mlx5 on mlx5_0:1, host memory (libuct.so.0.0.0 of UCX 1.13)".
  virtual const std::string& description() const = 0;
};

}  // namespace precis
