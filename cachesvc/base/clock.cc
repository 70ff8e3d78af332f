// The machine's clocks (clock.h).
#include "cachesvc/base/clock.h"

#include <chrono>

namespace precis {

std::uint64_t SystemClock::unix_ms() const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

std::uint64_t SystemClock::monotonic_ns() const {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace precis
