// The thread that returns space to the disk. It waits a while after it was woken, so that later
// removals share its work, except if space may be needed at once.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

namespace precis {

// Thread-safe, except start() and stop().
class Tidier {
 public:
  explicit Tidier(std::chrono::milliseconds delay) : delay_(delay) {}

  // Starts with a pass. A pass calls `tidy` until it returns false: nothing is left to do, or a
  // failure, for example on a full disk, prevents progress until the next pass.
  void start(std::function<bool(const std::stop_token& stop)> tidy);
  // `tidy` is not called any more once this returns.
  void stop();

  // `failed`: a write failed, perhaps for lack of space. There is no delay then until
  // there_is_room().
  void wake(bool failed);
  void there_is_room();
  std::uint64_t passes() const { return passes_; }

 private:
  void run(const std::stop_token& stop);

  const std::chrono::milliseconds delay_;
  std::function<bool(const std::stop_token&)> tidy_;
  std::atomic<std::uint64_t> passes_ = 0;
  std::mutex mutex_;
  std::condition_variable_any wanted_;
  // Guarded by mutex_. True at first: files may have few live values, and the disk may be full.
  bool untidy_ = true, failing_ = true;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace precis
