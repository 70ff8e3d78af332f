// The connection to one service over time: one Channel, and a new one when that one is lost. Any
// thread but the loop's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "client/src/channel.h"
#include "client/src/retry.h"

namespace precis {

class ReconnectingChannel {
 public:
  // Connects; as Channel::open().
  using Dial = std::function<Result<std::shared_ptr<Channel>>(std::uint32_t timeout_ms)>;

  // Connects at the first call of channel().
  explicit ReconnectingChannel(Dial dial) : dial_(std::move(dial)) {}

  // The channel, connected within `timeout_ms` if it never was, or if it was lost and the call
  // retries. One call at a time connects; the calls that wait meanwhile share its outcome.
  // kTimedOut past the call's deadline.
  Result<std::shared_ptr<Channel>> channel(const Retry& call, std::uint32_t timeout_ms);

 private:
  struct Dialing {
    std::uint32_t timeout_ms;
    Status outcome;  // set once it is over
  };

  // Holds `lock` at entry and at exit, and releases it in between.
  Status dial(std::unique_lock<std::mutex>& lock, std::uint32_t timeout_ms);

  const Dial dial_;
  std::mutex mutex_;
  std::condition_variable dialed_;
  // Guarded by mutex_.
  std::shared_ptr<Channel> channel_;  // null before the first; shared with the running calls
  std::shared_ptr<Dialing> dialing_;  // in progress, or null; shared with the waiting calls
};

}  // namespace precis
