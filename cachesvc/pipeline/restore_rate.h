// Measures recent reads, so that a match can carry a predicted time. The rates are exponential
// averages of measured gets and cold reads. Until a rate is measured, it is the rate of a memory
// copy at start, which is optimistic for the cold tier. The rate of the storage that nodes share is
// at first that of the disk.
#pragma once

#include <atomic>
#include <cstdint>

#include "cachesvc/base/clock.h"

namespace precis {

class RestoreRate {
 public:
  // Times a copy of a few MiB.
  explicit RestoreRate(const Clock& clock);

  // Thread-safe.
  void served(std::uint64_t bytes, double seconds) { update(served_, bytes, seconds); }
  void read_cold(std::uint64_t bytes, double seconds) { update(cold_, bytes, seconds); }
  void read_shared(std::uint64_t bytes, double seconds) { update(shared_, bytes, seconds); }
  // Whether anything was read from the storage that nodes share.
  bool knows_shared() const { return shared_.measured; }
  // Cold bytes are read first, then served. `shared_bytes` of the cold bytes are not on the disk.
  double predict_seconds(std::uint64_t bytes, std::uint64_t cold_bytes,
                         std::uint64_t shared_bytes) const;

 private:
  struct Rate {
    std::atomic<double> bytes_per_second{0};
    std::atomic<bool> measured{false};
  };
  void update(Rate& rate, std::uint64_t bytes, double seconds);
  Rate served_, cold_, shared_;
};

}  // namespace precis
