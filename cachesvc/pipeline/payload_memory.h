// Arena memory for the paths. A request gets free memory, else memory evicted from the hot tier,
// else it waits in a queue that is fair between tenants and their connections. A full service slows
// its clients down here: bytes without memory are not pulled. Loop thread only, except the
// destructor of a piece.
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

  // Acquires pieces of the arena, all or none, so that no request holds one while it waits for the
  // next. kRejected if they did not become free in time, kInvalidArgument if they never can,
  // kUnavailable after stop().
  struct Want {
    std::size_t size_bytes;
    Arena::End end = Arena::End::kLow;
  };
  using Pieces = std::vector<std::unique_ptr<Arena::Buffer>>;
  // Called at every try, because the wanted memory may grow during the wait.
  using Wants = std::function<std::vector<Want>()>;
  // kCanceled by drop_unwanted() if `unwanted` returns true.
  Task<Result<Pieces>> acquire(
      Wants wants, Owner owner, FairWaitQueue::Unwanted unwanted = [] { return false; });
  Task<Result<Pieces>> acquire(std::vector<Want> wants, Owner owner = {});
  // As acquire(), but at once, or kOutOfSpace. It never overtakes waiting requests.
  Result<Pieces> try_acquire(const std::vector<Want>& wants);
  // As try_acquire(), but only free ranges of the arena: it evicts nothing from the hot tier.
  Result<Pieces> try_free(const std::vector<Want>& wants);

  // Ends the wait of the requests that are unwanted by now.
  void drop_unwanted() { queue_.drop_unwanted(); }

  // Any thread. Memory may have become free: waiting requests try again.
  void retry();

  // Ends all waits, because the service is stopping.
  void stop();
  std::size_t waiting() const { return waiting_.load(); }
  const Labeled<Histogram>& waits() const { return queue_.waits(); }  // loop thread only
  // The wait of requests that arrive from now on. Loop thread only.
  void set_wait(std::chrono::milliseconds wait) {
    wait_ = wait;
    queue_.set_wait(wait);
  }

 private:
  using Answer = Result<Pieces>;
  Status check_fits(const std::vector<Want>& wants) const;
  Answer at_once(const std::vector<Want>& wants, bool evicting);
  Answer take(const std::vector<Want>& wants, bool evicting = true);
  Answer give_up(const std::vector<Want>& wants);

  Arena& arena_;
  HotTier& hot_tier_;
  const std::size_t size_bytes_;  // of the arena, less what was in use at construction
  EventLoop& loop_;
  std::chrono::milliseconds wait_;
  FairWaitQueue queue_;
  std::atomic<std::size_t> waiting_{0};  // requests in the queue
  bool stopped_ = false;
};

}  // namespace precis
