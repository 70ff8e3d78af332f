// Admission of puts by bytes: a put may begin once all that it will stage fits beside what those
// under way will. So puts that wait for memory never wait for each other for ever, each holding
// what the next one lacks. Loop thread only.
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
  // `size_bytes`: of the arena that puts may count on; a put that is alone may count on more. What
  // a put keeps beside the arena counts as well, so that it is bounded with the rest.
  PutRoom(EventLoop& loop, std::size_t size_bytes, std::chrono::milliseconds wait)
      : loop_(loop), size_bytes_(size_bytes), wait_(wait), line_(loop, wait) {}

  // What a put has been promised, until destroyed.
  class Place {
   public:
    Place(PutRoom& room, std::size_t bytes) : room_(room), bytes_(bytes) { room_.taken_ += bytes; }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();

   private:
    PutRoom& room_;
    const std::size_t bytes_;
  };

  // Waits its turn, fair between tenants and their connections. kRejected once it has waited in
  // vain, kUnavailable once stop() was called.
  Task<Result<std::unique_ptr<Place>>> enter(std::size_t bytes, Owner owner);
  void stop();
  std::size_t waiting() const { return line_.size(); }
  std::size_t taken_bytes() const { return taken_; }
  // How long those who come from now on wait. Loop thread only.
  void set_wait(std::chrono::milliseconds wait) {
    wait_ = wait;
    line_.set_wait(wait);
  }

 private:
  bool fits(std::size_t bytes) const { return taken_ == 0 || taken_ + bytes <= size_bytes_; }

  EventLoop& loop_;
  const std::size_t size_bytes_;
  std::chrono::milliseconds wait_;
  FairWaitQueue line_;
  std::size_t taken_ = 0;
  bool stopped_ = false;
};

}  // namespace precis
