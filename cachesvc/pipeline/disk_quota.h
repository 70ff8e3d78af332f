// Admits puts by the bytes that they will store: a put begins when its records fit under the limits
// of its tenant and of all tenants, beside what is stored and what the puts in progress will store.
// So no limit is exceeded. A put that does not fit waits until space is freed. If the nodes of a
// cluster share a storage, the bytes on the node's disk have another limit. Loop thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/histogram.h"
#include "cachesvc/base/labeled.h"
#include "cachesvc/base/task.h"
#include "precis/status.h"

namespace precis {

class DiskQuota {
 public:
  // In bytes of stored records; 0 or absent: no limit.
  struct Limits {
    std::uint64_t of_all = 0;
    std::map<std::string, std::uint64_t, std::less<>> of_tenant;
  };
  // Returns the bytes that a tenant's segments take, or those of all tenants for an empty name.
  using Stored = std::function<std::uint64_t(const std::string& tenant)>;

  DiskQuota(EventLoop& loop, Stored stored, Limits limits, std::chrono::milliseconds wait);

  // A put's admitted bytes; its destructor returns them.
  class Place {
   public:
    Place(DiskQuota& room, std::string tenant, std::uint64_t bytes);
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();

   private:
    DiskQuota& room_;
    const std::string tenant_;
    const std::uint64_t bytes_;
  };

  // Puts are admitted in order of arrival in each scope; one whose wait ends may overtake others.
  // kOutOfSpace if a limit is smaller than `bytes`, or nothing more can be freed for them.
  // kRejected if the bytes did not become free within the wait, but kOutOfSpace on the node's disk;
  // kUnavailable after stop().
  Task<Result<std::unique_ptr<Place>>> enter(std::string tenant, std::uint64_t bytes);

  // ---- for the capacity manager
  // `call` is called when a put has been admitted or has to wait, if there are limits, and when
  // limits were set. It must not block.
  void on_change(std::function<void()> call) { changed_ = std::move(call); }
  // A tenant with a limit, or all tenants (an empty name), and how full that is.
  struct Scope {
    std::string tenant;
    std::uint64_t limit = 0;
    std::uint64_t stored = 0;
    std::uint64_t promised = 0;
    std::uint64_t wanted = 0;   // by the first put that waits for this scope
    std::uint64_t missing = 0;  // bytes that must be freed for that put
  };
  std::vector<Scope> scopes() const;
  void retry();  // admits what fits now; call this after space was freed, or may have been
  // Refuses the first put that waits for this scope, because it would not fit even after all that
  // can be freed.
  void refuse_first(const std::string& scope);

  // ---- for the node's disk (cachesvc/server/warm_tier.h)
  // Returns the payload bytes there. From now on limit_disk() holds; 0: no limit.
  void measure_disk(std::function<std::uint64_t()> taken) { disk_taken_ = std::move(taken); }
  void limit_disk(std::uint64_t bytes);
  std::uint64_t disk_limit() const { return disk_limit_; }
  Scope disk() const;

  void set_limits(Limits limits);
  void set_wait(std::chrono::milliseconds wait) { wait_ = wait; }
  void stop();
  std::size_t waiting() const { return waiting_.size(); }
  const Labeled<Histogram>& waits() const { return waits_; }  // of each put, by tenant

 private:
  struct Waiter {
    std::string tenant;
    std::uint64_t bytes = 0;
    std::function<void(Result<std::unique_ptr<Place>>)> done;
    std::unique_ptr<EventLoop::Timer> deadline;
    Clock::Time since;
  };
  using Waiters = std::list<std::unique_ptr<Waiter>>;

  std::uint64_t limit_of(const std::string& tenant) const;
  std::uint64_t promised(const std::string& tenant) const;
  std::uint64_t taken(const std::string& tenant) const {
    return stored_(tenant) + promised(tenant);
  }
  // The scope whose limit is below these bytes; null if there is none.
  const std::string* small_scope(const std::string& tenant, std::uint64_t bytes) const;
  // Whether a put that waits has the right to what becomes free in a scope of this tenant.
  bool must_queue(const std::string& tenant) const;
  // The scope whose limit these bytes would exceed; null if they fit.
  const std::string* full_scope(const std::string& tenant, std::uint64_t bytes,
                                const Stored& stored) const;
  const std::string* full_scope(const std::string& tenant, std::uint64_t bytes) const {
    return full_scope(tenant, bytes, stored_);
  }
  std::string told(const std::string& scope, std::uint64_t bytes) const;
  Scope scope_of(const std::string& name, std::uint64_t limit, const Stored& stored) const;
  void refuse_too_large(const std::function<Status(const std::string& scope, std::uint64_t)>& why);
  // The first put that waits for the scope. Storage threads change what is stored meanwhile.
  Waiters::const_iterator first_for(const std::string& scope, const Stored& stored) const;
  void give_up(Waiters::const_iterator waiter);  // at the end of its wait
  void answer(Waiters::const_iterator waiter, Result<std::unique_ptr<Place>> result);
  void tell_change();

  EventLoop& loop_;
  const Stored stored_;
  Limits limits_;
  std::function<std::uint64_t()> disk_taken_;
  std::uint64_t disk_limit_ = 0;
  std::chrono::milliseconds wait_;
  std::map<std::string, std::uint64_t, std::less<>> promised_;  // by tenant, and of all: ""
  Waiters waiting_;                                             // in order of arrival
  std::function<void()> changed_;
  Labeled<Histogram> waits_;
  bool stopped_ = false;
};

}  // namespace precis
