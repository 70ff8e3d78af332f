// One value that one thread waits for and another one sets, and the reply to a request as one.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "cachesvc/base/clock.h"
#include "client/src/pending_requests.h"

namespace precis {

template <typename T>
class OneValue {
 public:
  // Call it once. The caller shares the object, because the waiting thread may release it at once.
  void set(T value) {
    {
      const std::lock_guard lock(mutex_);
      value_.emplace(std::move(value));
    }
    set_.notify_all();  // after the lock, so that the woken thread does not wait for it
  }
  bool ready() const {
    const std::lock_guard lock(mutex_);
    return value_.has_value();
  }
  // False if the value has not come by then.
  bool wait(const Clock& clock, Clock::Time until = Clock::Time::max()) {
    std::unique_lock lock(mutex_);
    return clock.wait(set_, lock, until, [this] { return value_.has_value(); });
  }
  // After it is ready().
  T take() { return std::move(*value_); }

 private:
  mutable std::mutex mutex_;
  std::condition_variable set_;
  std::optional<T> value_;  // guarded by mutex_
};

class OneReply final : public ReplySink, public OneValue<Result<msg::ReplyBody>> {
 public:
  void on_reply(Result<msg::ReplyBody> reply) override { set(std::move(reply)); }
};

}  // namespace precis
