// Limits the number of operations that are in progress at a time, and keeps their first error. Loop
// thread only. Lives on the frame of the coroutine that drains it.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "cachesvc/base/task.h"
#include "precis/status.h"

namespace precis {

class InFlight {
  // Resumes when fewer than `count` are in progress.
  auto below(std::size_t count) {
    wake_below_ = count;
    return completion<bool>([this](std::function<void(bool)> done) { waiting_ = std::move(done); });
  }

 public:
  explicit InFlight(std::size_t limit) : limit_(limit) {}
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  // Waits until fewer than `limit` are in progress, then counts one more, which leave() ends.
  Task<void> enter() {
    while (count_ >= limit_) co_await below(limit_);
    ++count_;
  }
  // Waits until the operation entered last is the only one in progress.
  Task<void> alone() {
    while (count_ > 1) co_await below(2);
  }
  void leave(Status status) {
    --count_;
    if (first_error_.ok() && !status.ok()) first_error_ = std::move(status);
    if (waiting_ && count_ < wake_below_) std::exchange(waiting_, nullptr)(true);
  }
  // Waits for all operations; returns the first error, if any.
  Task<Status> drain() {
    while (count_ > 0) co_await below(1);
    co_return first_error_;
  }
  const Status& first_error() const { return first_error_; }

 private:
  std::size_t limit_;
  std::size_t count_ = 0;
  std::size_t wake_below_ = 0;
  std::function<void(bool)> waiting_;  // the coroutine whose frame this lives on
  Status first_error_;
};

}  // namespace precis
