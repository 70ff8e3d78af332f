// What two threads need at least for a get within a host, whoever asks them.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/bench/transport_ceilings.h"

namespace precis::bench {

// As many bytes as a get moves, copied layer by layer around the caches, and each layer checked as
// a reader checks it once the next one is copied: nothing is asked for, and nobody is told.
class CopyAndCheck {
 public:
  // `size_bytes`, in whole records of some MiB.
  CopyAndCheck(std::size_t size_bytes, std::size_t layers);
  Result<double> rate();  // GB/s
  // The checks alone, of as many bytes, by the caller.
  Status check();
  std::size_t bytes() const { return layers_ * per_layer_ * record_.size(); }

 private:
  Status step(std::size_t at, MutableBytes from, MutableBytes to) const;

  const std::vector<std::byte> record_;   // of which all memory is full
  const std::size_t layers_, per_layer_;  // records
  ColdPool from_, to_;
};

}  // namespace precis::bench
