// A wait that the program may end (precis/interrupt.h). It is asked outside all locks and off the
// loop: its answer may have to wait for an interpreter, and whoever holds that for one of ours.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "precis/interrupt.h"

namespace precis {

class Interrupt {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // When to ask next; Time::max() where nobody wants to be asked.
  Time next() const { return next_; }
  bool due() const { return next_ != Time::max() && std::chrono::steady_clock::now() >= next_; }
  // Asks if that is due.
  bool came();

  // Until `over`. False if interrupted before.
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
  // False if interrupted before.
  bool sleep(std::chrono::milliseconds time);

 private:
  static Time first();

  Time next_ = first();  // what many short waits of a thread have in common
};

}  // namespace precis
