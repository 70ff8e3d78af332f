// Segments that stay readable for a while after they are removed, trimmed or replaced, because a
// lookup was promised so. While a segment is what is stored, a lease of it is a note; a change that
// takes it away first has the store keep its payload. In memory alone: a restart ends all leases.
//
// Thread-safe. What a lease may come to is counted when it is granted, of each tenant and in all.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/store/store.h"
#include "precis/catalog_row.h"
#include "precis/limits.h"

namespace precis {

class SegmentLeases {
 public:
  using Row = std::shared_ptr<const SegmentRow>;
  struct Bounds {  // in bytes of memory
    std::uint64_t of_tenant = limits::kLeaseBytesPerTenantMax;
    std::uint64_t of_all = limits::kLeaseBytesMax;
  };
  // Both outlive it.
  SegmentLeases(Store& store, const Clock& clock) : SegmentLeases(store, clock, Bounds()) {}
  SegmentLeases(Store& store, const Clock& clock, Bounds bounds)
      : store_(store), clock_(clock), bounds_(bounds) {}

  // All of one tenant, all of them or none, and each as it is stored now: the caller sees to it
  // that they stay so meanwhile. How many ms were granted; 0 where a bound is reached, or a change
  // is about to take one of them away. One that is leased already is so for the longer time. It
  // gives back no payload, which takes a while: sweep() does.
  std::uint32_t grant(std::span<const Row> rows, std::uint32_t ms);

  // A change that takes segments away, from before its write in the store to after it is seen by
  // who grants. One at a time.
  class Leaving {
   public:
    // [blocking] Has the store keep the payload of those that are leased. Leases of what it can't
    // keep end once the rows have left(); unless it `may_wait`, so do those of what waits for the
    // disk.
    Leaving(SegmentLeases& leases, std::vector<Row> rows, bool may_wait);
    ~Leaving();  // what is kept stays only if they have left()
    Leaving(const Leaving&) = delete;
    Leaving& operator=(const Leaving&) = delete;
    void left() { left_ = true; }

   private:
    SegmentLeases& leases_;
    std::vector<Row> rows_;
    bool left_ = false;
  };

  // Tells apart the segments that have been stored under one id.
  struct Version {
    SegmentId id;
    std::uint64_t created_unix_ms = 0, entries = 0;
    static Version of(const SegmentRow& row) {
      return {row.id, row.created_unix_ms, row.plan.total()};
    }
    auto operator<=>(const Version&) const = default;
  };
  // A segment that has left, with what reads of it take of its row. Readers outlive the lease.
  struct Held {
    Row row;
    std::shared_ptr<const KeptPayload> layers;
  };
  // Null where the tenant has no lease of it, or it has not left. Work: none while nothing is held.
  std::shared_ptr<const Held> find(std::string_view tenant, const Version& version) const;
  std::shared_ptr<const Held> find(const SegmentRow& row) const {
    return holds_any() ? find(row.tenant, Version::of(row)) : nullptr;
  }
  // Whether one is leased, or was lately: no other segment may be stored as that version.
  bool knows(const Version& version) const;

  // Ends those that have expired, and gives back what they held; to be called about every second,
  // on no thread that others wait for. Where the disk is short of space the earlier half of those
  // that hold some ends, too.
  void sweep(bool short_of_space = false);
  std::uint64_t bytes() const;  // what leases may come to

 private:
  struct Lease {
    std::string tenant;
    std::uint64_t until_ns = 0, bytes = 0;
    std::shared_ptr<const Held> held = nullptr;
  };
  using Leases = std::map<Version, Lease>;
  bool holds_any() const { return held_.load(std::memory_order_relaxed) > 0; }
  // With mutex_ held, these.
  void set_held(Lease& lease, std::shared_ptr<const Held> held);
  void end(Leases::iterator lease);
  void end_expired();

  Store& store_;
  const Clock& clock_;
  const Bounds bounds_;
  std::atomic<std::size_t> held_ = 0;  // leases of what has left; written with mutex_ held
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Leases leases_;
  std::vector<std::shared_ptr<const Held>> ended_;  // of leases that have ended, for sweep()
  std::map<std::string, std::uint64_t, std::less<>> bytes_of_;  // by tenant
  std::uint64_t bytes_ = 0, ended_bytes_ = 0;         // of leases, and of what ended_ still holds
  std::set<std::pair<std::uint64_t, Version>> ends_;  // until_ns of each
  std::set<Row> leaving_;
};

}  // namespace precis
