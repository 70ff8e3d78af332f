// Who waits for something scarce, in a line that is fair between connections: the next is the first
// of another owner, round robin, and each owner's stand in their order. Nobody overtakes the one
// whose turn it is, so what wants much is not starved by those who want little. Loop thread only.
//
// Bounded by those who wait: every one is a request, of which there are at most max_requests.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>

#include "cachesvc/base/event_loop.h"

namespace precis {

class FairLine {
 public:
  using Owner = const void*;  // a connection; null for what nobody asked for
  // Takes what is waited for and returns how to tell so; null where it is not to be had yet.
  using Take = std::function<std::function<void()>()>;
  // Tells that it was waited for in vain.
  using GiveUp = std::function<void()>;

  FairLine(EventLoop& loop, std::chrono::milliseconds wait) : loop_(loop), wait_(wait) {}
  FairLine(const FairLine&) = delete;
  FairLine& operator=(const FairLine&) = delete;

  std::size_t size() const { return size_; }
  // For those who come from now on.
  void set_wait(std::chrono::milliseconds wait) { wait_ = wait; }
  // Calls what `take` returns once it returns something, or `give_up` after the wait, at stop(), or
  // at drop_unwanted() once it is `unwanted`.
  using Unwanted = std::function<bool()>;
  void add(
      Owner owner, Take take, GiveUp give_up, Unwanted unwanted = [] { return false; });
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
  struct Lane {
    Owner owner;
    std::deque<std::unique_ptr<Waiter>> waiters;  // at least one
  };
  void leave(const Waiter* waiter);

  EventLoop& loop_;
  std::chrono::milliseconds wait_;
  std::deque<Lane> lanes_;  // the first one's first is next
  std::size_t size_ = 0;
};

}  // namespace precis
