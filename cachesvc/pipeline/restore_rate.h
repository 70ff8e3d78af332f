// Measures recent reads, so that a match can carry a predicted time. The rates are exponential
// averages of measured gets and cold reads. Before the first measurement of either, a copy timed at
// start replaces it, which is optimistic for the cold tier.
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
  // Cold bytes are read first, then served.
  double predict_seconds(std::uint64_t bytes, std::uint64_t cold_bytes) const;

 private:
  struct Rate {
    std::atomic<double> bytes_per_second{0};
    std::atomic<bool> measured{false};
  };
  void update(Rate& rate, std::uint64_t bytes, double seconds);
  Rate served_, cold_;
};

}  // namespace precis
