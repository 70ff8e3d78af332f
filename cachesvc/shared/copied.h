// Waiting, on the loop, for a copy in the shared storage.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"
#include "cachesvc/shared/uploads.h"

namespace precis {

// A shard while a node holds it, before the caller's own change.
struct HeldShard {
  std::uint32_t number = 0;
  Uploads::Held held;  // empty without shared storage
};

inline std::optional<std::uint32_t> number_of(const std::optional<HeldShard>& shard) {
  return shard ? std::optional(shard->number) : std::nullopt;
}

// A caller waits so long; then the change is stored at the node, and is copied later.
inline constexpr std::chrono::seconds kCopyWait{30};

// Loop thread. OK once all changes of the shard so far are in the shared storage, or if there is
// none: `uploads` or `shard` is absent. kTimedOut after kCopyWait. Other errors as
// Uploads::when_copied().
inline Task<Status> copied(EventLoop& loop, Uploads* uploads, std::optional<HeldShard> shard) {
  if (uploads == nullptr || !shard) co_return Status();
  const auto is_over = std::make_shared<bool>(false);  // used on the loop alone
  std::unique_ptr<EventLoop::Timer> timer;
  co_return co_await completion<Status>([&](std::function<void(Status)> done) {
    const auto end = [&loop, is_over, done = std::move(done)](Status status) {
      loop.post([is_over, done, status = std::move(status)] {
        if (!std::exchange(*is_over, true)) done(status);
      });
    };
    timer = loop.after(kCopyWait, [end] {
      end(Status::timed_out(
          "the change is stored here, and the shared storage does not take it now"));
    });
    uploads->when_copied(shard->number, shard->held, end);
  });
}

}  // namespace precis
