// A line of requests that wait for something scarce, fair between tenants and then between
// connections (fair_queue.h). Nobody overtakes the one whose turn it is, so what wants much is not
// starved by those who want little. Loop thread only.
//
// Bounded by those who wait: every one is a request, of which there are at most max_requests.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/pipeline/fair_queue.h"

namespace precis {

class FairWaitQueue {
 public:
  // Takes what is waited for and returns how to tell so; null where it is not to be had yet.
  using Take = std::function<std::function<void()>()>;
  // Tells that it was waited for in vain.
  using GiveUp = std::function<void()>;

  FairWaitQueue(EventLoop& loop, std::chrono::milliseconds wait) : loop_(loop), wait_(wait) {}
  FairWaitQueue(const FairWaitQueue&) = delete;
  FairWaitQueue& operator=(const FairWaitQueue&) = delete;

  std::size_t size() const { return queue_.size(); }
  // For those who come from now on.
  void set_wait(std::chrono::milliseconds wait) { wait_ = wait; }
  // Calls what `take` returns once it returns something, or `give_up` after the wait, at stop(), or
  // at drop_unwanted() once it is `unwanted`.
  using Unwanted = std::function<bool()>;
  void add(
      const Owner& owner, Take take, GiveUp give_up, Unwanted unwanted = [] { return false; });
  // What is waited for may have come free.
  void serve();
  // Those who do not want it any more have left.
  void drop_unwanted();
  // Nobody waits any more.
  void stop();

 private:
  struct Waiter {
    Take take;
    GiveUp give_up;
    Unwanted unwanted;
    std::unique_ptr<EventLoop::Timer> deadline;
  };
  using Waiting = std::unique_ptr<Waiter>;
  void leave(const Waiter* waiter);

  EventLoop& loop_;
  std::chrono::milliseconds wait_;
  FairQueue<Waiting> queue_;
};

}  // namespace precis
