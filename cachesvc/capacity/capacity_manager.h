// Keeps stored segments within the limits of max_disk_bytes. Above a high mark of a limit it trims
// and drops the least valuable segments (steps.h) until they take no more than a low mark, or until
// the puts that wait have room. Loop thread only; the choice runs on a storage thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "cachesvc/base/log.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/capacity/steps.h"
#include "cachesvc/pipeline/disk_quota.h"
#include "cachesvc/pipeline/prefill_rate.h"
#include "cachesvc/pipeline/trim.h"

namespace precis {

class CapacityManager {
 public:
  struct Settings {
    CapacityPolicy policy = CapacityPolicy::kValue;
    std::vector<double> ladder;
  };
  // All must outlive the manager, which takes over DiskQuota::on_change().
  struct Parts {
    EventLoop& loop;
    FairExecutor& storage;
    DiskQuota& quota;
    TrimPath& trim;
    Catalog& catalog;
    HotTier& hot_tier;
    PayloadMemory& memory;
    const PrefillRate& prefill;
    Metrics& metrics;
    Log& log;
    const Clock& clock;
  };
  CapacityManager(Parts parts, Settings settings);

  // With more stored bytes than this, a scope with this limit is over its high mark: segments are
  // trimmed and removed.
  static std::uint64_t high_mark(std::uint64_t limit);

  // Starts a round if a limit needs one and none runs. The service also calls this every second.
  void check();
  void set(Settings settings) { settings_ = std::move(settings); }
  void stop() { stopped_ = true; }
  bool busy() const { return busy_; }

 private:
  struct Plan {
    std::vector<StoredUse> uses;
    std::vector<CapacityStep> steps;
  };
  static std::uint64_t above_mark(const DiskQuota::Scope& scope);
  static std::uint64_t to_free(const DiskQuota::Scope& scope) {
    return std::max(above_mark(scope), scope.missing);
  }
  Task<void> run();
  // Frees bytes in a scope for about kTurn, or refuses a put that can never fit. Returns false if
  // it did neither. The scope must outlive the task.
  Task<bool> relieve(const DiskQuota::Scope& scope);
  // Any thread.
  Plan plan(const DiskQuota::Scope& scope, const Settings& settings, std::uint64_t bytes) const;
  Task<Result<std::uint64_t>> carry_out(const StoredUse& use, const CapacityStep& step);

  const Parts parts_;
  Settings settings_;
  Clock::Time next_{};         // no run before then, because the last one changed nothing
  std::set<SegmentId> uncut_;  // segments that a trim of this run could not make smaller
  bool busy_ = false, stopped_ = false;
};

}  // namespace precis
