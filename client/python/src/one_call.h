// One call of an object at a time, whatever threads make them.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

namespace precis::python {

// Lets one call in at a time: the second waits until the first has left.
class OneCall {
 public:
  // `what` is named in errors.
  explicit OneCall(std::string what) : what_(std::move(what)) {}

  // While one lives, its thread is in the call. Needs the GIL, which it lets go of while it waits.
  // Raises InvalidArgument where this thread is in a call already (a signal's handler, say), and
  // what interrupts the wait.
  class In {
   public:
    explicit In(OneCall& calls);
    ~In();
    In(const In&) = delete;
    In& operator=(const In&) = delete;

   private:
    OneCall& calls_;
  };

 private:
  const std::string what_;
  std::timed_mutex mutex_;
  std::atomic<std::thread::id> owner_{};
};

}  // namespace precis::python
