// The connection to the service over time: one Channel, and a new one when that one is lost.
// Idempotent calls, and calls that had no effect, are retried within their deadline.
//
// Owned by the client's handles. Any thread but the loop's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "client/src/channel.h"
#include "client/src/retry.h"
#include "precis/messages.h"

namespace precis {

class ReconnectingChannel {
 public:
  // Connects; as Channel::open().
  using Dial = std::function<Result<std::shared_ptr<Channel>>(std::uint32_t timeout_ms)>;
  // Whether a call that was sent may be repeated after its connection was lost: whether it is
  // idempotent.
  enum class Repeat : std::uint8_t { kSafe, kUnsafe };

  // Connects. A service that is not there is kUnavailable at once; one that says when to retry is
  // retried within the timeout.
  static Result<std::shared_ptr<ReconnectingChannel>> open(Dial dial, const CallOptions& options);

  // The channel, connected again if it was lost and the call retries. One call at a time connects;
  // the calls that wait meanwhile share its outcome. kTimedOut past the call's deadline.
  Result<std::shared_ptr<Channel>> channel(const Retry& call);

  template <typename T>
  Result<T> call(const CallOptions& options, msg::RequestBody body,
                 Patience patience = Patience::kOneTimeout, Repeat repeat = Repeat::kSafe) {
    Retry retry(options, std::string(kind_of(body).call));
    return this->call<T>(retry, std::move(body), patience, repeat);
  }
  // The same, as a part of a longer call.
  template <typename T>
  Result<T> call(Retry& retry, msg::RequestBody body, Patience patience = Patience::kOneTimeout,
                 Repeat repeat = Repeat::kSafe) {
    msg::Request request{0, std::move(body)};
    for (;;) {
      auto open = channel(retry);
      Status failed = open.status();
      if (failed.ok()) {
        const bool sends = !(*open)->lost();
        auto reply = (*open)->template call<T>(request, patience, {}, retry.deadline());
        if (reply.ok()) return reply;
        failed = reply.status();
        // A channel that was lost before the call has sent nothing.
        const bool gone = failed.code() == StatusCode::kUnavailable;
        if (gone && sends && repeat == Repeat::kUnsafe) {
          return failed.with_context(retry.what() + ": the outcome is unknown");
        }
      }
      PRECIS_TRY(retry.again(failed));
    }
  }

 private:
  struct Dialing {
    std::uint32_t timeout_ms;
    Status outcome;  // set once it is over
  };

  explicit ReconnectingChannel(Dial dial) : dial_(std::move(dial)) {}
  // Holds `lock` at entry and at exit, and releases it in between.
  Status dial(std::unique_lock<std::mutex>& lock, std::uint32_t timeout_ms);

  const Dial dial_;
  std::mutex mutex_;
  std::condition_variable dialed_;
  // Guarded by mutex_.
  std::shared_ptr<Channel> channel_;  // shared with the running calls
  std::shared_ptr<Dialing> dialing_;  // in progress, or null; shared with the waiting calls
};

}  // namespace precis
