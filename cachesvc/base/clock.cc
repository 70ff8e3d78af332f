// The machine's clocks (clock.h).
#include "cachesvc/base/clock.h"

#include <chrono>
#include <thread>

namespace precis {

void Clock::sleep(std::chrono::nanoseconds time) const { std::this_thread::sleep_for(time); }

bool Clock::wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Time until,
                 const std::function<bool()>& over) const {
  if (until != Time::max()) return changed.wait_until(lock, until, over);
  changed.wait(lock, over);
  return true;
}

std::uint64_t SystemClock::unix_ms() const { return unix_ns() / 1'000'000; }

std::uint64_t SystemClock::unix_ns() const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

std::uint64_t SystemClock::monotonic_ns() const {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace precis
