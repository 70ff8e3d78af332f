// Which thread drives an event loop that is lent (EventLoop::run_lent()).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace precis {

class Lending {
 public:
  // The driving thread stops. `wanted`: whether the loop's own thread must take it back at once.
  template <typename Wanted>
  void leave(const Wanted& wanted) {
    left_.store(true);
    if (wanted()) want();
  }
  // Called after a function was queued. leave() sets left_ first and asks `wanted` second, and this
  // reads left_ after the function was queued, so at least one of the two threads sees the other.
  void posted() {
    if (left_.load()) want();
  }
  // True if no thread drove the loop and this thread does now.
  bool enter() {
    bool expected = true;
    return left_.compare_exchange_strong(expected, false);
  }
  // Another thread than the loop's own has driven the loop; call it before leave().
  void drove() { drives_.fetch_add(1); }
  // Called by the loop's own thread. Returns, after enter(), when the loop is wanted, or when no
  // other thread has driven it for kLentTime.
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
  // If nobody drives a lent loop for this long, its own thread takes it back. An event that arrives
  // meanwhile can wait this long.
  static constexpr std::chrono::milliseconds kLentTime{5};

  void want() {
    const std::lock_guard lock(mutex_);
    wanted_ = true;
    wanted_changed_.notify_one();
  }

  std::atomic<bool> left_{false};  // the loop is lent and no thread drives it
  std::atomic<std::uint64_t> drives_{0};
  std::mutex mutex_;
  std::condition_variable wanted_changed_;
  bool wanted_ = false;  // guarded by mutex_
};

}  // namespace precis
