// A semaphore: a limited number of coroutines are inside, the others wait in order of arrival. Must
// outlive the waiting coroutines. Loop thread only.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"

namespace precis {

class Gate {
 public:
  Gate(EventLoop& loop, std::size_t places) : loop_(loop), places_(places) {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  Task<void> enter() {
    if (places_ > 0) {
      --places_;
      co_return;
    }
    co_await completion<bool>([this](auto done) { outside_.push_back(std::move(done)); });
  }
  // Gives the place to the first waiting coroutine, which resumes in a later turn of the loop.
  void leave() {
    if (outside_.empty()) {
      ++places_;
      return;
    }
    loop_.post([next = std::move(outside_.front())] { next(true); });
    outside_.pop_front();
  }

 private:
  EventLoop& loop_;
  std::size_t places_;  // free places
  std::deque<std::function<void(bool)>> outside_;
};

}  // namespace precis
