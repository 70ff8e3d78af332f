// The best rates of this machine, measured in the same run as our own. Benchmarks print them as
// ceilings. All buffers are cold: each run moves bytes that no cache holds.
#pragma once

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "precis/status.h"
#include "precis/view.h"

namespace precis::bench {

// A pool much larger than the caches. Each call of next() returns its next piece of `size_bytes`.
class ColdPool {
 public:
  explicit ColdPool(std::size_t size_bytes);
  ~ColdPool();
  ColdPool(const ColdPool&) = delete;
  ColdPool& operator=(const ColdPool&) = delete;
  MutableBytes all() const { return {memory_, size_}; }
  MutableBytes next(std::size_t size_bytes);

 private:
  std::byte* memory_;
  std::size_t size_;
  std::size_t at_ = 0;
};

// Bytes of each pool of a lane: the pools of all lanes together are as large as those of a single
// lane.
std::size_t lane_pool_bytes(std::size_t size_bytes, std::size_t lanes);

// The ceiling within one host: `lanes` threads copy from memory to memory, past the caches, with
// the fastest copy that we know (stream_copy.h).
class CopyCeiling {
 public:
  CopyCeiling(std::size_t size_bytes, std::size_t lanes);
  // Each lane copies `size_bytes`, `times` times. Returns the seconds until the last lane ends.
  double run(std::size_t times);

 private:
  struct Lane {
    explicit Lane(std::size_t pool_bytes) : from(pool_bytes), to(pool_bytes) {}
    ColdPool from, to;
  };
  const std::size_t size_bytes_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

// The ceiling over TCP: blocking sockets on 127.0.0.1, one thread at each end.
class SocketCeiling {
 public:
  static Result<std::unique_ptr<SocketCeiling>> open(std::size_t size_bytes, std::size_t lanes);
  ~SocketCeiling();
  // Each lane sends `size_bytes` and waits for the receiver's acknowledgement, `times` times.
  // Returns the seconds until the last lane ends.
  Result<double> run(std::size_t times);

 private:
  struct Lane;
  explicit SocketCeiling(std::size_t size_bytes);
  const std::size_t size_bytes_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace precis::bench
