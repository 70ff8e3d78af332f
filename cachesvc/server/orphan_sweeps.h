// Sweeps the shared storage once a day for objects that no row names (orphans.h), and again an hour
// after some were found. Loop thread only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/catalog/shard_catalog.h"
#include "cachesvc/server/orphans.h"

namespace precis {

class OrphanSweeps {
 public:
  // All outlive it.
  struct Parts {
    SharedTier& tier;
    Uploads& uploads;
    ShardCatalog& catalog;
    Runtime& runtime;
    EventLoop& loop;
    Log& log;
    std::atomic<std::uint64_t>& removed;  // counts the objects
  };
  // The first sweep begins at a random time of the next day.
  explicit OrphanSweeps(const Parts& parts);
  ~OrphanSweeps();  // waits for a sweep, which ends soon
  OrphanSweeps(const OrphanSweeps&) = delete;
  OrphanSweeps& operator=(const OrphanSweeps&) = delete;

 private:
  void sweep_after(std::chrono::nanoseconds delay);
  void note(const Orphans::Done& done);

  const Parts parts_;
  std::unique_ptr<EventLoop::Timer> timer_;
  Orphans orphans_;
  std::unique_ptr<Executor> thread_;  // the last: it uses the others
};

}  // namespace precis
