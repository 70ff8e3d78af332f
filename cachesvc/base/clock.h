// Time as an injected dependency, so that tests can advance it.
#pragma once

#include <cstdint>

namespace precis {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::uint64_t unix_ms() const = 0;       // wall clock
  virtual std::uint64_t monotonic_ns() const = 0;  // for durations
};

// The machine's clocks.
class SystemClock final : public Clock {
 public:
  std::uint64_t unix_ms() const override;
  std::uint64_t monotonic_ns() const override;
};

}  // namespace precis
