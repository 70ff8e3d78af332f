#include "cachesvc/server/disk_watch.h"

#include <chrono>
#include <utility>

namespace precis {
namespace {

constexpr std::chrono::seconds kLookEvery{1};

}  // namespace

DiskWatch::DiskWatch(Store& store, Log& log, EventLoop& loop, Runtime& runtime)
    : store_(store), log_(log), loop_(loop), thread_(runtime.make_executor("disk-watch", 1)) {
  look();
  look_later();
}

void DiskWatch::look_later() {
  timer_ = loop_.after(kLookEvery, [this] {
    const auto fired = std::move(timer_);  // lives until the end of its own call
    look_later();
    if (looking_.exchange(true)) return;
    thread_->post([this] {
      look();
      looking_ = false;
    });
  });
}

StoreHealth DiskWatch::health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

StoreStats DiskWatch::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void DiskWatch::look() {
  StoreHealth now = store_.health();
  const StoreStats stats = store_.stats();
  StoreHealth before;
  {
    const std::lock_guard lock(mutex_);
    before = std::exchange(health_, now);
    stats_ = stats;
  }
  if (!now.files.ok() && before.files.ok()) {
    log_.error("files of the store were deleted, changes fail from now on",
               {{"status", now.files.to_string()}});
  }
  if (now.low && !before.low) {
    log_.error("puts are refused for want of space: remove or trim prefixes, or make room",
               {{"free_bytes", now.free_bytes},
                {"min_free_bytes", now.min_free_bytes},
                {"reserve_bytes", now.reserve_bytes},
                {"total_bytes", now.total_bytes}});
  }
  if (!now.low && before.low) {
    log_.info("the disk has room again: puts go on", {{"free_bytes", now.free_bytes}});
  }
}

}  // namespace precis
