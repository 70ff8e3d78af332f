// Ends expired leases of segments, off the loop, because it may free many values.
#pragma once

#include <atomic>

#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/fair_executor.h"
#include "cachesvc/server/disk_watch.h"

namespace precis {

class LeaseSweeper {
 public:
  LeaseSweeper(FairExecutor& storage, Catalog& catalog, DiskWatch& disk)
      : storage_(storage), catalog_(catalog), disk_(disk) {}

  // Call it about every second. It does nothing while a sweep is in progress.
  void sweep() {
    if (sweeping_.exchange(true)) return;
    storage_.post({}, [this] {
      catalog_.leases().sweep(disk_.health().low);
      sweeping_ = false;
      return false;
    });
  }

 private:
  FairExecutor& storage_;
  Catalog& catalog_;
  DiskWatch& disk_;
  std::atomic<bool> sweeping_ = false;
};

}  // namespace precis
