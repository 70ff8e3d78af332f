// Looks after the store's disk every second, on a thread of its own: what an operator must know is
// in the log once, when it begins and when it ends. Statistics of the store are of the last look.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "cachesvc/base/log.h"
#include "cachesvc/store/store.h"

namespace precis {

class DiskWatch {
 public:
  // Both outlive it. The first look is done when this returns.
  DiskWatch(Store& store, Log& log);
  ~DiskWatch();

  // Any thread: as of the last look. Whoever asks often costs the disk nothing.
  StoreHealth health() const;
  StoreStats stats() const;

 private:
  void look();

  Store& store_;
  Log& log_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  StoreHealth health_;   // guarded by mutex_
  StoreStats stats_;     // guarded by mutex_
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace precis
