// What this machine could do at best, measured in the same run as what we do: the ceilings beside
// which benchmarks print their numbers. All buffers are cold: each run moves bytes that no cache
// holds.
#pragma once

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "precis/status.h"
#include "precis/view.h"

namespace precis::bench {

// A pool much larger than the caches, of which each run takes the next piece of `size_bytes`.
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

// Bytes of one lane of several: pools of all lanes together are as large as one's alone would be.
std::size_t lane_pool_bytes(std::size_t size_bytes, std::size_t lanes);

// The ceiling within one host: `lanes` threads copy from memory to memory and leave the caches
// alone, by the fastest copy that we know (stream_copy.h).
class CopyCeiling {
 public:
  CopyCeiling(std::size_t size_bytes, std::size_t lanes);
  // Each lane copies `size_bytes`, `times` times; seconds until the last is done.
  double run(std::size_t times);

 private:
  struct Lane {
    explicit Lane(std::size_t pool_bytes) : from(pool_bytes), to(pool_bytes) {}
    ColdPool from, to;
  };
  const std::size_t size_bytes_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

// The ceiling over TCP: blocking sockets on 127.0.0.1, a thread at each end.
class SocketCeiling {
 public:
  static Result<std::unique_ptr<SocketCeiling>> open(std::size_t size_bytes, std::size_t lanes);
  ~SocketCeiling();
  // Each lane sends `size_bytes` and waits until the receiver says that it has them, `times` times;
  // seconds until the last is done.
  Result<double> run(std::size_t times);

 private:
  struct Lane;
  explicit SocketCeiling(std::size_t size_bytes);
  const std::size_t size_bytes_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace precis::bench
