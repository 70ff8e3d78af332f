// A wait that the program may end (precis/interrupt.h). The callback runs outside all locks and off
// the loop: it may have to wait for an interpreter, whose lock another thread may hold while it
// waits for one of our locks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "cachesvc/base/clock.h"
#include "precis/interrupt.h"

namespace precis {

class Interrupt {
 public:
  using Time = Clock::Time;

  // `clock` outlives it.
  explicit Interrupt(const Clock& clock) : clock_(clock) {}

  // The time of the next check; Time::max() if no callback is set.
  Time next() const { return next_; }
  bool due() const { return next_ != Time::max() && clock_.now() >= next_; }
  // Runs the callback if it is due.
  bool came();

  // Waits until `over`. False if interrupted before.
  bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
            const std::function<bool()>& over);
  // False if interrupted before the end.
  bool sleep(std::chrono::milliseconds time);

 private:
  Time first() const;

  const Clock& clock_;
  Time next_ = first();  // shared by a thread's successive short waits
};

}  // namespace precis
