// What this machine could do at best, measured in the same run as what we do: the ceilings beside
// which benchmarks print their numbers (DESIGN section 10). All buffers are cold: each run moves
// bytes that no cache holds.
#pragma once

#include <cstddef>
#include <vector>

#include "precis/status.h"
#include "precis/view.h"

namespace precis::bench {

// GB/s (1e9 bytes) of `runs` runs.
struct Rate {
  double median = 0, min = 0, max = 0;
  std::size_t runs = 0;
};
Rate summarize(std::vector<double> gb_per_second);

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

// The ceiling within one host: one thread copies `size_bytes` from memory to memory and leaves the
// caches alone (non-temporal stores).
Rate measure_copy(std::size_t size_bytes, std::size_t runs);

// The ceiling over TCP: `size_bytes` through one blocking socket on 127.0.0.1, from one thread to
// another, until the receiver has them.
Result<Rate> measure_socket(std::size_t size_bytes, std::size_t runs);

}  // namespace precis::bench
