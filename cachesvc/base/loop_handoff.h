// Hands an event loop from one driving thread to the next, for EventLoop::run_lent(). A lent loop
// is free while no thread drives it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace precis {

class LoopHandoff {
 public:
  // The driving thread frees the loop. `wanted` returns whether the loop's own thread must take the
  // loop back at once.
  template <typename Wanted>
  void leave(const Wanted& wanted) {
    left_.store(true);
    if (wanted()) want();
  }
  // Called after a function was queued. leave() sets left_ and then calls `wanted`, which looks for
  // queued functions; posted() reads left_ after the function was queued. So at least one of the
  // two threads sees what the other did.
  void posted() {
    if (left_.load()) want();
  }
  // Takes the loop for this thread if the loop is free. Returns false if it is not.
  bool enter() {
    bool expected = true;
    return left_.compare_exchange_strong(expected, false);
  }
  // Records that a thread other than the loop's own has driven the loop. Call it before leave().
  void drove() { drives_.fetch_add(1); }
  // Called by the loop's own thread. Waits until the loop is wanted, or no other thread has driven
  // it for kLentTime. Then takes the loop and returns.
  void take_back() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const std::uint64_t drives_before = drives_.load();
      const bool at_once = wanted_changed_.wait_for(lock, kLentTime, [this] { return wanted_; });
      wanted_ = false;
      if ((at_once || drives_.load() == drives_before) && enter()) return;
    }
  }

 private:
  // The loop's own thread takes the loop back if no other thread has driven it for this long. An
  // event that arrives meanwhile can wait this long.
  static constexpr std::chrono::milliseconds kLentTime{5};

  void want() {
    const std::lock_guard lock(mutex_);
    wanted_ = true;
    wanted_changed_.notify_one();
  }

  std::atomic<bool> left_{false};  // the loop is free
  std::atomic<std::uint64_t> drives_{0};
  std::mutex mutex_;
  std::condition_variable wanted_changed_;
  bool wanted_ = false;  // guarded by mutex_
};

}  // namespace precis
