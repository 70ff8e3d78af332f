// The latest events of the stored segments of each tenant, numbered. A reader names the position up
// to which it has read. So nothing is kept for a reader, and a reader that falls behind loses
// events and is told so. Loop thread only, except activity().
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/catalog/catalog.h"
#include "precis/limits.h"
#include "precis/messages.h"

namespace precis {

class EventLog {
 public:
  // The most that is kept. `bytes`: of all tenants; the tenant with the most loses its oldest.
  struct Bounds {
    std::size_t events_per_tenant = limits::kEventsPerTenantMax;
    std::size_t bytes_per_tenant = limits::kEventBytesPerTenantMax;
    std::size_t bytes = limits::kEventBytesMax;
  };
  // `epoch`: a random number, so that a reader notices that the service was started again.
  explicit EventLog(std::uint64_t epoch) : EventLog(epoch, Bounds()) {}
  EventLog(std::uint64_t epoch, Bounds bounds) : epoch_(epoch), bounds_(bounds) {}

  // Gives the event its tenant's next number, from 1 on.
  void add(const std::string& tenant, msg::KvEvent event);
  // Drops the tenant's events, because a new tenant of that name must not read them. The numbers go
  // on, so that a reader learns that events are lost.
  void forget(const std::string& tenant);
  // Called for every event after it was added. One function for all.
  using Added = std::function<void(const std::string& tenant, std::uint64_t number,
                                   std::shared_ptr<const msg::KvEvent>)>;
  void on_added(Added added) { added_ = std::move(added); }

  // The place of a reader.
  struct Place {
    std::uint64_t number = 0;  // of the last event that it has
    // Set while it lists the stored segments: the last one that it has, null for none. Then it
    // reads the events after `number`.
    std::optional<SegmentId> listed = {};
    // Set if events after `number` are gone: how many, 0 if that is unknown.
    std::optional<std::uint64_t> lost = {};
  };
  // `position`: as in ListEvents. kInvalidArgument if it is malformed.
  Result<Place> find(const std::string& tenant, std::string_view position) const;
  // The text of a place.
  std::string position(std::uint64_t number, const std::optional<SegmentId>& listed = {}) const;
  // At most `limit` events after `number`, of which none is gone.
  msg::Events read(const std::string& tenant, std::uint64_t number, std::size_t limit) const;
  // The page for a reader that has lost events: `next` begins with what is stored.
  msg::Events lost(const std::string& tenant, std::uint64_t events) const;

  // A number that changes with every event, and with note_activity(). Any thread.
  std::uint64_t activity() const { return activity_; }
  void note_activity() { ++activity_; }

 private:
  struct Tenant {
    std::uint64_t newest = 0;
    std::deque<std::shared_ptr<const msg::KvEvent>> kept;  // the last of them is `newest`
    std::size_t bytes = 0;
    std::uint64_t before_first() const { return newest - kept.size(); }
  };
  void drop_oldest(Tenant& of);
  const Tenant& of(const std::string& tenant) const;

  const std::uint64_t epoch_;
  const Bounds bounds_;
  std::map<std::string, Tenant> tenants_;
  std::size_t bytes_ = 0;
  std::atomic<std::uint64_t> activity_ = 0;
  Added added_;
};

// Counts the catalog's events, and adds them to the log in their order. An event is in the log
// before the request that changed the catalog is answered. All outlive the catalog's last change.
void record_events(Catalog& catalog, EventLoop& loop, Metrics& metrics, EventLog& log);

}  // namespace precis
