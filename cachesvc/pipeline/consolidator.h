// Consolidates growing chains in the background, so that a conversation of many turns stays a few
// segments: after a commit, it turns the small segments before the new one into one. One run at
// a time, in the turns of its tenant, and only while no put or get waits for memory or disk. A run
// that is left out is found again at the chain's next commit. Loop thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "cachesvc/base/log.h"
#include "cachesvc/pipeline/consolidate.h"
#include "cachesvc/pipeline/disk_quota.h"
#include "cachesvc/pipeline/put_path.h"
#include "cachesvc/pipeline/put_room.h"

namespace precis {

// The number of segments at the end of a run that become one. Each of them has at most twice the
// bytes of all after it; 0 if they are fewer than `least`. So each byte is copied a logarithmic
// number of times while a chain grows, and the chain has a logarithmic number of segments. `bytes`:
// from the root on. At most kConsolidatedMax segments, of together at most `bytes_max`.
inline constexpr std::size_t kConsolidatedMax = 256;
std::size_t worth_consolidating(std::span<const std::uint64_t> bytes, std::size_t least,
                                std::uint64_t bytes_max);

// The tips of chains that wait. Tenants take turns, whatever the number of their tips.
class WaitingTips {
 public:
  // Tips of all tenants and of one. Further ones wait for their next commit.
  static constexpr std::size_t kMax = 1024, kOfTenantMax = 128;
  struct Tip {
    Owner owner;
    SegmentId segment;
  };
  void add(const Owner& owner, const SegmentId& segment);  // once
  Tip take_next();                                         // there must be one
  bool empty() const { return tips_.empty(); }
  void clear() { tips_.clear(); }

 private:
  std::deque<Tip> tips_;  // in order of arrival
  std::string last_tenant_;
};

class Consolidator {
 public:
  struct Settings {
    bool on = true;
    std::uint32_t least_links = 8;
  };
  // All must outlive this object.
  struct Parts {
    EventLoop& loop;
    FairExecutor& reads;
    FairExecutor& storage;
    ColdReads& cold;
    PayloadMemory& memory;
    Catalog& catalog;
    HotTier& hot_tier;
    const PutRoom& put_room;
    const DiskQuota& disk_quota;
    const PutPath& puts;
    std::size_t arena_bytes;
    Metrics& metrics;
    Log& log;
  };
  Consolidator(Parts parts, Settings settings);

  void set(Settings settings) { settings_ = settings; }
  // The segment was committed: its chain may have a run to consolidate. `owner`: the tenant,
  // without a connection.
  void committed(const Owner& owner, const SegmentId& tip);
  void stop();
  bool busy() const { return busy_; }
  // Requests wait for memory or the disk. Work in the background then takes neither.
  bool others_wait() const;

 private:
  Task<void> work();
  Task<Result<bool>> consolidate(Owner owner, SegmentId tip);

  const Parts parts_;
  Settings settings_;
  ConsolidatePath path_;
  WaitingTips tips_;
  bool busy_ = false, stopped_ = false;
};

}  // namespace precis
