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

  // The same for a thread that has no GIL and wants none: false where the wait was interrupted, and
  // where this thread is in a call already. After true, leave().
  bool enter_without_gil();
  // True without waiting, if no thread is in a call. After it, leave().
  bool try_enter();
  void leave();

 private:
  const std::string what_;
  std::timed_mutex mutex_;
  std::atomic<std::thread::id> owner_{};
};

}  // namespace precis::python
