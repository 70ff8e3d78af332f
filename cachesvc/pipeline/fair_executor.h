// Threads for work in pieces. A job with more work waits after every piece for its next turn, in a
// queue that is fair between tenants and then between connections (fair_queue.h).
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/executor.h"
#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/fair_queue.h"

namespace precis {

class FairExecutor {
 public:
  explicit FairExecutor(std::unique_ptr<Executor> threads) : executor_(std::move(threads)) {}
  FairExecutor(const FairExecutor&) = delete;
  FairExecutor& operator=(const FairExecutor&) = delete;

  // Any thread. Calls `piece` on one of the threads, once per turn, until it returns false because
  // no work is left. `cost`: the length of a piece, as a multiple of an ordinary piece.
  using Piece = std::function<bool()>;
  void post(Owner owner, Piece piece, double cost = 1);
  // Any thread. The number of pieces begun so far.
  std::uint64_t pieces() const { return pieces_.load(std::memory_order_relaxed); }

 private:
  struct Job {
    Owner owner;
    Piece piece;
    double cost;
  };
  void add(Job job);
  void run_one();

  std::atomic<std::uint64_t> pieces_{0};
  std::mutex mutex_;
  FairQueue<Job> queue_;  // guarded by mutex_
  // Last: its destructor runs the posted work, which uses the members above.
  std::unique_ptr<Executor> executor_;
};

// co_await in_turns(executor, loop, owner, piece): runs `piece` as post() does, and resumes on the
// loop when no work is left.
template <typename Piece>
class InTurns {
 public:
  InTurns(FairExecutor& executor, EventLoop& loop, Owner owner, Piece piece, double cost)
      : executor_(executor),
        loop_(loop),
        owner_(std::move(owner)),
        piece_(std::move(piece)),
        cost_(cost) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> awaiting) {
    executor_.post(
        std::move(owner_),
        [this, awaiting] {
          if (piece_()) return true;
          loop_.post([awaiting] { awaiting.resume(); });
          return false;
        },
        cost_);
  }
  void await_resume() const noexcept {}

 private:
  FairExecutor& executor_;
  EventLoop& loop_;
  Owner owner_;
  Piece piece_;
  double cost_;
};
template <typename Piece>
InTurns<Piece> in_turns(FairExecutor& executor, EventLoop& loop, Owner owner, Piece piece,
                        double cost = 1) {
  return {executor, loop, std::move(owner), std::move(piece), cost};
}

// co_await run_on(executor, loop, owner, fn): runs fn() when it is the owner's turn and returns its
// result on the loop. `cost`: as that of in_turns().
template <typename Fn>
Task<std::invoke_result_t<Fn&>> run_on(FairExecutor& executor, EventLoop& loop, Owner owner, Fn fn,
                                       double cost = 1) {
  std::optional<std::invoke_result_t<Fn&>> result;
  const auto piece = [&] {
    result.emplace(fn());
    return false;
  };
  co_await in_turns(executor, loop, std::move(owner), piece, cost);
  co_return std::move(*result);
}

}  // namespace precis
