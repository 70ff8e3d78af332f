#include "client/src/link.h"

namespace precis {

Result<std::shared_ptr<Link>> Link::open(Dial dial, const CallOptions& options) {
  std::shared_ptr<Link> link(new Link(std::move(dial)));  // shared by all handles
  PRECIS_ASSIGN(link->channel_, link->dial_(Retry(options, "connect").connect_timeout_ms()));
  return link;
}

Result<std::shared_ptr<Channel>> Link::channel(const Retry& call) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (call.deadline() == Retry::Time::max()) {
    lock.lock();
  } else if (!lock.try_lock_until(call.deadline())) {
    return call.too_late("the connection that another call makes");
  }
  if (channel_->lost() && call.retries()) {
    if (std::chrono::steady_clock::now() >= call.deadline()) {
      return call.too_late("a connection to the service");
    }
    PRECIS_ASSIGN(channel_, dial_(call.connect_timeout_ms()));
  }
  return channel_;
}

}  // namespace precis
