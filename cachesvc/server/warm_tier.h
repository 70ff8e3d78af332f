// The disk of a node as a tier in front of the shared storage (docs/design/cluster.md, Warm tier).
// It keeps what is put and read while there is room, and gives up what was used least recently,
// once the shared storage has a copy. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "cachesvc/base/config.h"
#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/cluster/membership.h"
#include "cachesvc/pipeline/disk_quota.h"
#include "cachesvc/server/disk_watch.h"
#include "cachesvc/server/eviction.h"

namespace precis {

class WarmTier {
 public:
  // All outlive it. `config` is in force: a reload changes it.
  struct Parts {
    const Config& config;
    Runtime& runtime;
    EventLoop& loop;
    const cluster::Membership& membership;
    Store& store;
    Catalog& catalog;
    const DiskWatch& disk;
    DiskQuota& quota;
    Metrics& metrics;
    Log& log;
  };
  WarmTier(const Parts& parts, Eviction::Parts eviction);
  ~WarmTier();  // waits for an eviction, which ends soon

  // The most payload that the disk may have: warm_disk_bytes, or less if the disk has no room for
  // that beside twice what must stay free. At least 1.
  static std::uint64_t limit(std::uint64_t warm_disk_bytes, const StoreHealth& disk,
                             const StoreStats& stored);

 private:
  static constexpr std::chrono::milliseconds kPauseMin{500}, kPauseMax{4000};
  void look();
  void look_later();
  void evict(std::uint64_t bytes);
  void note(const Eviction::Done& done);

  const Parts parts_;
  bool busy_ = false;
  std::uint64_t asked_ = 0;  // bytes, by the last eviction
  Clock::Time next_{};       // no eviction before then, because the last one freed less
  std::chrono::milliseconds pause_ = kPauseMin;
  Status problem_;
  std::unique_ptr<EventLoop::Timer> timer_;
  Eviction eviction_;
  std::unique_ptr<Executor> thread_;  // the last: it uses the others
};

}  // namespace precis
