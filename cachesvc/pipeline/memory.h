// Arena space for the paths. Takes what is free, then what the hot tier gives up, then waits its
// turn: this is where a full service slows its clients down, because what has no memory is not
// pulled. Loop thread only, but for the destruction of a Piece.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>

#include "cachesvc/base/arena.h"
#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"
#include "cachesvc/store/hot_tier.h"

namespace precis {

class Memory {
 public:
  Memory(Arena& arena, HotTier& hot_tier, EventLoop& loop, std::chrono::milliseconds wait);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // A piece of the arena. kOutOfSpace if none came free in time, or if none that large ever can.
  Task<Result<std::unique_ptr<Arena::Buffer>>> acquire(std::size_t size_bytes);

  // Any thread: memory may have come free; waiters try again.
  void retry();

 private:
  using Answer = Result<std::unique_ptr<Arena::Buffer>>;
  struct Waiter {
    std::size_t size_bytes;
    std::function<void(Answer)> done;
    std::unique_ptr<EventLoop::Timer> deadline;
  };
  Answer take(std::size_t size_bytes);
  void serve_waiters();
  void give_up(const Waiter* waiter);

  Arena& arena_;
  HotTier& hot_tier_;
  EventLoop& loop_;
  std::chrono::milliseconds wait_;
  std::deque<std::unique_ptr<Waiter>> waiters_;
  std::atomic<std::size_t> waiting_{0};
};

}  // namespace precis
