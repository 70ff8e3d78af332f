// A wait that the program may end (precis/interrupt.h). The callback runs outside all locks and off
// the loop: it may have to wait for an interpreter, whose lock another thread may hold while it
// waits for one of our locks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "precis/interrupt.h"

namespace precis {

class Interrupt {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The time of the next check; Time::max() if no callback is set.
  Time next() const { return next_; }
  bool due() const { return next_ != Time::max() && std::chrono::steady_clock::now() >= next_; }
  // Runs the callback if it is due.
  bool came();

  // Waits until `over`. False if interrupted before.
  template <typename Over>
  bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
            const Over& over) {
    for (;;) {
      if (next_ == Time::max()) {
        changed.wait(lock, over);
        return true;
      }
      if (changed.wait_until(lock, next_, over)) return true;
      lock.unlock();
      const bool stop = came();
      lock.lock();
      if (stop) return false;
    }
  }
  // False if interrupted before the end.
  bool sleep(std::chrono::milliseconds time);

 private:
  static Time first();

  Time next_ = first();  // shared by a thread's successive short waits
};

}  // namespace precis
