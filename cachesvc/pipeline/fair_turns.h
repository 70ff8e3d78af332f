// Turns on the loop, fair between tenants and then between connections (fair_queue.h): whoever asks
// for many waits for those who ask for few. Loop thread only.
#pragma once

#include <functional>
#include <memory>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/pipeline/fair_queue.h"

namespace precis {

class FairTurns {
 public:
  explicit FairTurns(EventLoop& loop) : loop_(loop) {}
  FairTurns(const FairTurns&) = delete;
  FairTurns& operator=(const FairTurns&) = delete;

  // Calls `turn` once, later. Not at all if this goes first.
  void ask(const Owner& owner, std::function<void()> turn);

 private:
  using Queue = FairQueue<std::function<void()>>;
  void post();
  void serve();

  EventLoop& loop_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();  // shared with what is posted
  bool posted_ = false;
};

}  // namespace precis
