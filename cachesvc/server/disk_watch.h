// Checks the store's disk every second, on its own thread. A condition that concerns an operator is
// logged once when it begins and once when it ends. The store's statistics are those of the last
// check.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "cachesvc/base/log.h"
#include "cachesvc/store/store.h"

namespace precis {

class DiskWatch {
 public:
  // Both must outlive it. The first check is done when the constructor returns.
  DiskWatch(Store& store, Log& log);
  ~DiskWatch();

  // Any thread. The result of the last check, so that frequent calls cost no disk access.
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
  std::jthread thread_;  // last member: it uses all of the above
};

}  // namespace precis
