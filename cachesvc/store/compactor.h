// The thread that returns space to the disk. It waits a while after it was woken, so that later
// removals share its work, except if space may be needed at once.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <utility>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/executor.h"

namespace precis {

// Thread-safe, except start() and stop().
class Compactor {
 public:
  // `thread`: of one thread.
  Compactor(std::unique_ptr<Executor> thread, const Clock& clock, std::chrono::milliseconds delay)
      : clock_(clock), delay_(delay), thread_(std::move(thread)) {}

  // Makes a pass at once. A pass calls `compact` until it returns false: nothing is left to do, or
  // a failure, for example on a full disk, prevents progress until the next pass.
  void start(std::function<bool(const std::stop_token& stop)> compact);
  // `compact` is not called any more once this returns.
  void stop();

  // `failed`: a write failed, perhaps for lack of space. There is no delay then until
  // space_available().
  void wake(bool failed);
  void space_available();
  std::uint64_t passes() const { return passes_; }

 private:
  void run();

  const Clock& clock_;
  const std::chrono::milliseconds delay_;
  std::function<bool(const std::stop_token&)> compact_;
  std::atomic<std::uint64_t> passes_ = 0;
  std::mutex mutex_;
  std::condition_variable wanted_;
  // Guarded by mutex_.
  bool pending_ = false, failing_ = false;
  bool running_ = false;  // run() is posted, or runs
  std::stop_source stop_;
  std::unique_ptr<Executor> thread_;  // last: it uses all of the above
};

}  // namespace precis
