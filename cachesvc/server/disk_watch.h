// Checks the store's disk every second, on a thread of its own. A condition that concerns an
// operator is logged once when it begins and once when it ends. The store's statistics are those of
// the last check.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "cachesvc/base/log.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/store/store.h"

namespace precis {

class DiskWatch {
 public:
  // All must outlive it. The first check is done when the constructor returns; later ones need the
  // loop to run.
  DiskWatch(Store& store, Log& log, EventLoop& loop, Runtime& runtime);

  // Any thread. The result of the last check, so that frequent calls cost no disk access.
  StoreHealth health() const;
  StoreStats stats() const;

 private:
  void look();
  void look_later();

  Store& store_;
  Log& log_;
  mutable std::mutex mutex_;
  StoreHealth health_;  // guarded by mutex_
  StoreStats stats_;    // guarded by mutex_
  EventLoop& loop_;
  std::atomic<bool> looking_{false};  // a check is in progress
  std::unique_ptr<EventLoop::Timer> timer_;
  std::unique_ptr<Executor> thread_;  // last member: it uses all of the above
};

// Logs how many more segments were dropped than `told`, which it updates. Called once a second, so
// that it logs at most one line a second.
void warn_of_dropped(Log& log, std::uint64_t dropped, std::uint64_t& told);

}  // namespace precis
