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
    log_.error("files of the store were deleted, so changes fail from now on",
               {{"status", now.files.to_string()}});
  }
  if (now.low && !before.low) {
    log_.error(
        "the disk has too little free space, so puts are refused: remove or trim prefixes, or free "
        "space on the disk",
        {{"free_bytes", now.free_bytes},
         {"min_free_bytes", now.min_free_bytes},
         {"reserve_bytes", now.reserve_bytes},
         {"total_bytes", now.total_bytes}});
  }
  if (!now.low && before.low) {
    log_.info("the disk has enough free space again: puts are accepted",
              {{"free_bytes", now.free_bytes}});
  }
}

void warn_of_dropped(Log& log, std::uint64_t dropped, std::uint64_t& told) {
  if (dropped == told) return;
  log.warn(
      "segments committed at memory were dropped for newer ones: puts arrive faster than the disk "
      "writes",
      {{"count", dropped - std::exchange(told, dropped)}});
}

}  // namespace precis
