#include "client/src/reconnecting_channel.h"

namespace precis {

Result<std::shared_ptr<Channel>> ReconnectingChannel::channel(const Retry& call,
                                                              std::uint32_t timeout_ms) {
  std::shared_ptr<Channel> old;  // destroyed after the lock is released: it may wait for its loop
  std::unique_lock lock(mutex_);
  while (!channel_ || (channel_->lost() && call.retries())) {
    if (call.clock().now() >= call.deadline()) {
      return call.too_late("a connection to the service");
    }
    if (!dialing_) {
      old = channel_;
      PRECIS_TRY(dial(lock, timeout_ms));
      return channel_;
    }
    const std::shared_ptr<const Dialing> other = dialing_;
    const auto over = [&] { return dialing_ != other; };
    if (!call.clock().wait(dialed_, lock, call.deadline(), over)) {
      return call.too_late("the connection that another call makes");
    }
    // A call with more time than the other had dials again.
    const bool cut_short =
        other->outcome.code() == StatusCode::kTimedOut && other->timeout_ms < timeout_ms;
    if (!other->outcome.ok() && !cut_short) return other->outcome;
  }
  return channel_;
}

Status ReconnectingChannel::dial(std::unique_lock<std::mutex>& lock, std::uint32_t timeout_ms) {
  const auto dialing = std::make_shared<Dialing>(Dialing{timeout_ms, {}});
  dialing_ = dialing;
  lock.unlock();
  auto channel = dial_(timeout_ms);
  lock.lock();
  dialing->outcome = channel.status();
  if (channel.ok()) channel_ = std::move(*channel);
  dialing_.reset();
  dialed_.notify_all();
  return dialing->outcome;
}

}  // namespace precis
