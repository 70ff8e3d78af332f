// Lower bound on the time of a get within one host with two threads.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/bench/transport_ceilings.h"

namespace precis::bench {

// Copies as many bytes as a get, layer by layer, past the caches, and checks each layer as a reader
// does, once the next layer is copied. There are no requests and no answers.
class CopyAndCheck {
 public:
  // Rounds `size_bytes` to whole records of about 1 MiB.
  CopyAndCheck(std::size_t size_bytes, std::size_t layers);
  Result<double> rate();  // GB/s
  // Checks as many bytes, without copies, on the calling thread.
  Status check();
  std::size_t bytes() const { return layers_ * per_layer_ * record_.size(); }

 private:
  Status step(std::size_t at, MutableBytes from, MutableBytes to) const;

  const std::vector<std::byte> record_;   // all memory is filled with copies of it
  const std::size_t layers_, per_layer_;  // in records
  ColdPool from_, to_;
};

}  // namespace precis::bench
