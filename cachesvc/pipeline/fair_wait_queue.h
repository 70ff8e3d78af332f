// A queue of requests that wait for a scarce resource, fair between tenants and then between
// connections (fair_queue.h). No request overtakes the one whose turn it is, so small requests
// cannot starve a large one. Loop thread only.
//
// Its length is bounded: each waiter is a request, and there are at most max_requests.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/histogram.h"
#include "cachesvc/base/labeled.h"
#include "cachesvc/pipeline/fair_queue.h"

namespace precis {

class FairWaitQueue {
 public:
  // Takes the resource and returns a function that tells the request; null if the resource is not
  // available yet.
  using Take = std::function<std::function<void()>()>;
  // Tells the request that its wait was unsuccessful.
  using GiveUp = std::function<void()>;

  FairWaitQueue(EventLoop& loop, std::chrono::milliseconds wait) : loop_(loop), wait_(wait) {}
  FairWaitQueue(const FairWaitQueue&) = delete;
  FairWaitQueue& operator=(const FairWaitQueue&) = delete;

  std::size_t size() const { return queue_.size(); }
  // The waits of the requests that have left the queue, by tenant.
  const Labeled<Histogram>& waits() const { return waits_; }
  // Sets the longest wait of the requests that are added from now on.
  void set_wait(std::chrono::milliseconds wait) { wait_ = wait; }
  // Calls `take` until it returns a function, and then that function. Calls `give_up` instead after
  // the wait, at stop(), or at drop_unwanted() if `unwanted` returns true.
  using Unwanted = std::function<bool()>;
  void add(
      const Owner& owner, Take take, GiveUp give_up, Unwanted unwanted = [] { return false; });
  // Call this when the resource may have become available.
  void serve();
  // Ends the wait of the requests that are unwanted by now.
  void drop_unwanted();
  // Ends all waits.
  void stop();

 private:
  struct Waiter {
    std::string tenant;
    Take take;
    GiveUp give_up;
    Unwanted unwanted;
    Clock::Time since;
    std::unique_ptr<EventLoop::Timer> deadline;
  };
  using Waiting = std::unique_ptr<Waiter>;
  void leave(const Waiter* waiter);
  void note(const Waiter& left);

  EventLoop& loop_;
  std::chrono::milliseconds wait_;
  FairQueue<Waiting> queue_;
  Labeled<Histogram> waits_;
};

}  // namespace precis
