// Reports snapshots of the logs in S3 that fail (cachesvc/shared/log_tier.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/log.h"

namespace precis {

// Thread-safe.
class SnapshotProblems {
 public:
  static constexpr std::chrono::minutes kTellEvery{1};

  // Both outlive it.
  SnapshotProblems(Log& log, const Clock& clock) : log_(log), clock_(clock) {}

  // Logs a failure, unless another one was logged less than kTellEvery ago. Returns whether it
  // logged.
  bool note(const std::string& name, const Status& status) {
    if (status.ok()) return false;
    const std::uint64_t number = ++count_;
    {
      const std::lock_guard lock(mutex_);
      const Clock::Time now = clock_.now();
      if (told_ && now - *told_ < kTellEvery) return false;
      told_ = now;
    }
    log_.warn("a log in S3 could not be made shorter",
              {{"log", name}, {"error", status.message()}, {"failures", number}});
    return true;
  }
  // Failures so far.
  std::uint64_t count() const { return count_; }

 private:
  Log& log_;
  const Clock& clock_;
  std::atomic<std::uint64_t> count_ = 0;
  std::mutex mutex_;
  std::optional<Clock::Time> told_;  // guarded by mutex_
};

}  // namespace precis
