// Measures how long a put's compression takes.
#pragma once

#include <atomic>
#include <cstdint>

#include "cachesvc/base/clock.h"

namespace precis {

// Adds the duration of its scope to `total`. Waits for memory or a thread belong outside the scope.
class ComputeTime {
 public:
  ComputeTime(const Clock& clock, std::atomic<std::uint64_t>& total)
      : clock_(clock), total_(total), began_ns_(clock.monotonic_ns()) {}
  ~ComputeTime() { total_ += clock_.monotonic_ns() - began_ns_; }
  ComputeTime(const ComputeTime&) = delete;
  ComputeTime& operator=(const ComputeTime&) = delete;

 private:
  const Clock& clock_;
  std::atomic<std::uint64_t>& total_;
  std::uint64_t began_ns_;
};

}  // namespace precis
