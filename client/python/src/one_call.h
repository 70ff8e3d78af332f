// Serializes the calls of one object by several threads.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

namespace precis::python {

// Admits one call at a time: a second call waits until the first has ended.
class OneCall {
 public:
  // `what`: the object's name in errors.
  explicit OneCall(std::string what) : what_(std::move(what)) {}

  // While an In exists, its thread is in the call. Needs the GIL, and releases it while it waits.
  // Raises InvalidArgument if this thread is already in a call (for example in a signal handler),
  // and the exception that interrupts the wait.
  class In {
   public:
    explicit In(OneCall& calls);
    ~In();
    In(const In&) = delete;
    In& operator=(const In&) = delete;

   private:
    OneCall& calls_;
  };

  // The same for a thread that does not hold the GIL. False if the wait was interrupted or this
  // thread is already in a call. After true, call leave().
  bool enter_without_gil();
  // True, without waiting, if no thread is in a call; then call leave().
  bool try_enter();
  void leave();

 private:
  const std::string what_;
  std::timed_mutex mutex_;
  std::atomic<std::thread::id> owner_{};
};

}  // namespace precis::python
