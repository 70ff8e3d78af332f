// Arena space for the paths. Takes what is free, then what the hot tier gives up, then waits its
// turn, in a line that is fair between tenants and their connections: this is where a full service
// slows its clients down, because what has no memory is not pulled. Loop thread only, but for the
// destruction of a Piece.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "cachesvc/base/arena.h"
#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/fair_wait_queue.h"
#include "cachesvc/store/hot_tier.h"

namespace precis {

class PayloadMemory {
 public:
  PayloadMemory(Arena& arena, HotTier& hot_tier, EventLoop& loop, std::chrono::milliseconds wait);
  PayloadMemory(const PayloadMemory&) = delete;
  PayloadMemory& operator=(const PayloadMemory&) = delete;

  // Pieces of the arena, all or none, so that nobody holds one while waiting for the next.
  // kRejected if they did not come free in time, kInvalidArgument if they never can, kUnavailable
  // once stop() was called.
  struct Want {
    std::size_t size_bytes;
    Arena::End end = Arena::End::kLow;
  };
  using Pieces = std::vector<std::unique_ptr<Arena::Buffer>>;
  // Asked for anew at every try: what is wanted may grow while it is waited for.
  using Wants = std::function<std::vector<Want>()>;
  // kCanceled at drop_unwanted() once it is `unwanted`.
  Task<Result<Pieces>> acquire(
      Wants wants, Owner owner, FairWaitQueue::Unwanted unwanted = [] { return false; });
  Task<Result<Pieces>> acquire(std::vector<Want> wants, Owner owner = {});
  // Told in a turn of its own when somebody's turn to take memory was in vain: the first time, and
  // then where some came free since the last. What is free may lie in pieces. Replaced by the next.
  void on_unserved(std::function<void()> told) { unserved_ = std::move(told); }
  // As acquire(), at once or kOutOfSpace; it is nobody's turn before those who wait.
  Result<Pieces> try_acquire(const std::vector<Want>& wants);
  // The same, of what nobody uses: the hot tier gives nothing up.
  Result<Pieces> try_free(const std::vector<Want>& wants);

  // Where somebody waits, takes from the hot tier what nobody reads: waiters would take it all, and
  // before staged memory is moved together is the time, lest it leave holes there.
  void reclaim();

  bool is_awaited() const { return waiting_.load() > 0; }

  // Who does not want it any more waits no longer.
  void drop_unwanted() { line_.drop_unwanted(); }

  // Any thread: memory may have come free; waiters try again.
  void retry();

  // Nobody waits any more: the service is stopping.
  void stop();
  std::size_t waiting() const { return waiting_.load(); }
  // How long those who come from now on wait. Loop thread only.
  void set_wait(std::chrono::milliseconds wait) {
    wait_ = wait;
    line_.set_wait(wait);
  }

 private:
  using Answer = Result<Pieces>;
  Status check_fits(const std::vector<Want>& wants) const;
  Answer at_once(const std::vector<Want>& wants, bool evicting);
  Answer take(const std::vector<Want>& wants, bool evicting = true);
  Answer give_up(const std::vector<Want>& wants);

  Arena& arena_;
  HotTier& hot_tier_;
  const std::size_t size_bytes_;  // of the arena, less what was taken before this came
  EventLoop& loop_;
  std::chrono::milliseconds wait_;
  FairWaitQueue line_;
  std::function<void()> unserved_ = [] {};
  std::atomic<std::size_t> waiting_{0};  // in the line
  bool stopped_ = false;
};

}  // namespace precis
