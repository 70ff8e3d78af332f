// Time as an injected dependency: tests advance it, and the simulation runs in it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace precis {

class Clock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~Clock() = default;
  virtual std::uint64_t unix_ms() const = 0;  // wall clock
  virtual std::uint64_t unix_ns() const { return unix_ms() * 1'000'000; }
  virtual std::uint64_t monotonic_ns() const = 0;  // for durations
  Time now() const { return Time(std::chrono::nanoseconds(monotonic_ns())); }

  // The calling thread waits, by default in the machine's time. wait() returns over(), at the
  // latest at `until` (Time::max(): never); the caller holds `lock`, and so does over().
  virtual void sleep(std::chrono::nanoseconds time) const;
  virtual bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                    Time until, const std::function<bool()>& over) const;
};

// The machine's clocks.
class SystemClock final : public Clock {
 public:
  std::uint64_t unix_ms() const override;
  std::uint64_t unix_ns() const override;
  std::uint64_t monotonic_ns() const override;
};

}  // namespace precis
