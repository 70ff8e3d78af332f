// Admits puts by bytes: a put begins when everything that it will stage fits beside what the puts
// in progress will stage. So puts do not deadlock, each holding memory that another one waits for.
// Loop thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/fair_wait_queue.h"
#include "precis/status.h"

namespace precis {

class PutRoom {
 public:
  // `size_bytes`: the part of the arena that puts may use; a put that is alone may use more. Bytes
  // that a put keeps outside the arena count too, so that they are bounded as well.
  PutRoom(EventLoop& loop, std::size_t size_bytes, std::chrono::milliseconds wait)
      : loop_(loop), size_bytes_(size_bytes), wait_(wait), queue_(loop, wait) {}

  // A put's admitted bytes; its destructor returns them.
  class Place {
   public:
    Place(PutRoom& room, std::size_t bytes) : room_(room), bytes_(bytes) { room_.taken_ += bytes; }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();
    // Counts more bytes, without a wait: the put has begun. The room may then hold more than its
    // size, and puts that have not begun wait.
    void add(std::size_t bytes) {
      bytes_ += bytes;
      room_.taken_ += bytes;
    }

   private:
    PutRoom& room_;
    std::size_t bytes_;
  };

  // Waits for its turn, fair between tenants and their connections. kRejected if the bytes did not
  // become free within the wait, kUnavailable after stop().
  Task<Result<std::unique_ptr<Place>>> enter(std::size_t bytes, Owner owner);
  // Whether a put of these bytes would enter without a wait.
  bool is_free(std::size_t bytes) const {
    return bytes == 0 || (queue_.size() == 0 && fits(bytes));
  }
  void stop();
  std::size_t waiting() const { return queue_.size(); }
  const Histogram& waits() const { return queue_.waits(); }  // loop thread only
  std::size_t taken_bytes() const { return taken_; }
  // The wait of requests that arrive from now on. Loop thread only.
  void set_wait(std::chrono::milliseconds wait) {
    wait_ = wait;
    queue_.set_wait(wait);
  }

 private:
  bool fits(std::size_t bytes) const { return taken_ == 0 || taken_ + bytes <= size_bytes_; }

  EventLoop& loop_;
  const std::size_t size_bytes_;
  std::chrono::milliseconds wait_;
  FairWaitQueue queue_;
  std::size_t taken_ = 0;
  bool stopped_ = false;
};

}  // namespace precis
