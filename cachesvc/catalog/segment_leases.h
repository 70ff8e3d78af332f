// Leases keep segments readable for a while after they are removed, trimmed or replaced, as a
// lookup has promised. While the leased segment is stored, its lease is only an entry here. Before
// a change takes the segment away, it makes the store keep the segment's payload. In memory only: a
// restart ends all leases.
//
// Thread-safe. The memory that a lease may need is counted when it is granted, per tenant and in
// total.
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
  // The store and the clock must outlive this object.
  SegmentLeases(Store& store, const Clock& clock) : SegmentLeases(store, clock, Bounds()) {}
  SegmentLeases(Store& store, const Clock& clock, Bounds bounds)
      : store_(store), clock_(clock), bounds_(bounds) {}

  // Leases all of these segments or none. All belong to one tenant and are the stored versions; the
  // caller makes sure that they stay so during the call. Returns the granted time in ms. Returns 0
  // if a limit is reached, a change is about to take one of them away, or there is nothing to
  // lease. If a segment is leased already, its lease ends at the later of both times. This function
  // does not free kept payload, which takes a while: sweep() does.
  std::uint32_t grant(std::span<const Row> rows, std::uint32_t ms);

  // A change that takes segments away. It lives from before the change's write in the store until
  // callers of grant() see the change. One at a time.
  class Removal {
   public:
    // [blocking] Makes the store keep the payload of the leased segments. After applied(), a lease
    // ends if the store cannot keep its payload. Without `may_wait`, the store does not keep
    // payload that is not on the disk yet.
    Removal(SegmentLeases& leases, std::vector<Row> rows, bool may_wait);
    ~Removal();  // drops the kept payload unless applied()
    Removal(const Removal&) = delete;
    Removal& operator=(const Removal&) = delete;
    void applied() { applied_ = true; }

   private:
    SegmentLeases& leases_;
    std::vector<Row> rows_;
    bool applied_ = false;
  };

  // Distinguishes the segments that have been stored under one id.
  struct Version {
    SegmentId id;
    std::uint64_t created_unix_ms = 0, entries = 0;
    static Version of(const SegmentRow& row) {
      return {row.id, row.created_unix_ms, row.plan.total()};
    }
    auto operator<=>(const Version&) const = default;
  };
  // A removed segment, with the part of its row that reads need. Readers may outlive the lease.
  struct Held {
    Row row;
    std::shared_ptr<const KeptPayload> layers;
  };
  // Returns null if the tenant has no lease of this version, or this version is still stored. Work:
  // none while no payload is held.
  std::shared_ptr<const Held> find(std::string_view tenant, const Version& version) const;
  std::shared_ptr<const Held> find(const SegmentRow& row) const {
    return holds_any() ? find(row.tenant, Version::of(row)) : nullptr;
  }
  // Returns whether this version is leased, or was lately: no other segment may be stored as this
  // version.
  bool knows(const Version& version) const;

  // Ends expired leases and frees their payload. Call it about every second, on a thread that no
  // other thread waits for. If the disk is short of space, it also ends half of the leases that
  // hold payload, starting with those that expire first.
  void sweep(bool short_of_space = false);
  std::uint64_t bytes() const;  // memory counted for leases

 private:
  struct Lease {
    std::string tenant;
    std::uint64_t until_ns = 0, bytes = 0;
    std::shared_ptr<const Held> held = nullptr;
  };
  using Leases = std::map<Version, Lease>;
  bool holds_any() const { return held_.load(std::memory_order_relaxed) > 0; }
  // Callers hold mutex_ for the functions below.
  void set_held(Lease& lease, std::shared_ptr<const Held> held);
  void end(Leases::iterator lease);
  void end_expired();

  Store& store_;
  const Clock& clock_;
  const Bounds bounds_;
  std::atomic<std::size_t> held_ = 0;  // leases that hold payload; written with mutex_ held
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Leases leases_;
  // Payload of ended leases, until sweep() frees it.
  std::vector<std::shared_ptr<const Held>> ended_;
  std::map<std::string, std::uint64_t, std::less<>> bytes_of_;  // by tenant
  std::uint64_t bytes_ = 0, ended_bytes_ = 0;         // for leases_, and for ended_ until freed
  std::set<std::pair<std::uint64_t, Version>> ends_;  // until_ns of each lease
  std::set<Row> being_removed_;
};

}  // namespace precis
