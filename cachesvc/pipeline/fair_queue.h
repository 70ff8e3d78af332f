// A queue that is fair between tenants, and within a tenant between its connections. A tenant of
// weight 2 gets twice as many turns as a tenant of weight 1, however many connections either has.
// The connections of a tenant take turns; the requests of one connection stay in order.
//
// The turns of tenants follow start-time fair queueing: each turn advances the tenant's own clock
// by the turn's cost divided by its weight, and the tenant with the lowest clock is next. A tenant
// that returns starts at the clock of the tenant served last, so it gains nothing by waiting.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "precis/status.h"

namespace precis {

// A tenant's weight, at least 1. Copies share it, so a new weight applies at once to open
// connections and queued items. Any thread.
class Weight {
 public:
  Weight() = default;          // 1; set() is not allowed
  Weight(std::uint32_t value)  // NOLINT: implicit on purpose
      : value_(std::make_shared<std::atomic<std::uint32_t>>(value)) {}
  std::uint32_t get() const { return value_ ? std::max<std::uint32_t>(1, *value_) : 1; }
  void set(std::uint32_t value) const { *value_ = value; }

 private:
  std::shared_ptr<std::atomic<std::uint32_t>> value_;
};

// The tenant and connection on whose behalf work is done. The default is no tenant, which counts as
// one more tenant.
struct Owner {
  Owner() = default;
  // Not an aggregate: if an aggregate is made in an argument of a co_awaited call, g++ 12 destroys
  // it twice.
  Owner(std::string name, Weight tenant_weight = {}, const void* from = nullptr)  // NOLINT: {"a"}
      : tenant(std::move(name)), weight(std::move(tenant_weight)), connection(from) {}
  std::string tenant;
  Weight weight;
  const void* connection = nullptr;  // an identity only, never dereferenced
};

// Not thread-safe. Work of one operation: proportional to the number of tenants, and to the number
// of one tenant's connections, that have items in the queue.
template <typename Item>
class FairQueue {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  // `cost`: the length of this turn, as a multiple of an ordinary turn.
  void push(const Owner& owner, Item item, double cost = 1) {
    Tenant& tenant = tenants_[owner.tenant];
    tenant.weight = owner.weight;
    if (tenant.lanes.empty()) {
      tenant.clock = std::max(tenant.clock, clock_);
      tenant.arrived = ++arrivals_;
    }
    auto lane = std::ranges::find(tenant.lanes, owner.connection, &Lane::connection);
    if (lane == tenant.lanes.end()) {
      lane = tenant.lanes.insert(lane, Lane{owner.connection, {}});
    }
    lane->entries.push_back({std::move(item), cost});
    ++size_;
  }

  // The item whose turn it is. Requires a non-empty queue.
  Item& front() { return next().lanes.front().entries.front().item; }

  // Removes and returns front(); this counts as the tenant's turn.
  Item pop() {
    Tenant& tenant = next();
    Lane lane = std::move(tenant.lanes.front());
    tenant.lanes.pop_front();
    Entry entry = std::move(lane.entries.front());
    lane.entries.pop_front();
    if (!lane.entries.empty()) tenant.lanes.push_back(std::move(lane));
    clock_ = tenant.clock;
    tenant.clock += entry.cost / tenant.weight.get();
    tenant.arrived = ++arrivals_;
    --size_;
    erase_idle();
    return std::move(entry.item);
  }

  // Removes and returns the first item for which `is_meant` is true, regardless of turns. None if
  // there is no such item.
  template <typename IsMeant>
  std::optional<Item> take_if(const IsMeant& is_meant) {
    for (auto& [name, tenant] : tenants_) {
      for (auto lane = tenant.lanes.begin(); lane != tenant.lanes.end(); ++lane) {
        const auto it =
            std::ranges::find_if(lane->entries, [&](const Entry& e) { return is_meant(e.item); });
        if (it == lane->entries.end()) continue;
        std::optional<Item> taken(std::move(it->item));
        lane->entries.erase(it);
        if (lane->entries.empty()) tenant.lanes.erase(lane);
        --size_;
        erase_idle();
        return taken;
      }
    }
    return std::nullopt;
  }

 private:
  struct Entry {
    Item item;
    double cost;
  };
  struct Lane {
    const void* connection;
    std::deque<Entry> entries;  // at least one
  };
  struct Tenant {
    double clock = 0;
    std::uint64_t arrived = 0;  // when it last arrived or was served; breaks ties
    Weight weight;
    std::deque<Lane> lanes;  // the first entry of the first lane is the tenant's next
  };

  Tenant& next() {
    PRECIS_CHECK(size_ > 0);
    Tenant* best = nullptr;
    for (auto& [name, tenant] : tenants_) {
      if (tenant.lanes.empty()) continue;
      const bool sooner = best == nullptr || tenant.clock < best->clock ||
                          (tenant.clock == best->clock && tenant.arrived < best->arrived);
      if (sooner) best = &tenant;
    }
    return *best;
  }

  // Keeps a tenant without items as long as its clock shows that it has had more than its share.
  void erase_idle() {
    if (size_ == 0) {
      tenants_.clear();
      clock_ = 0;
      return;
    }
    std::erase_if(tenants_, [this](const auto& row) {
      return row.second.lanes.empty() && row.second.clock <= clock_;
    });
  }

  std::map<std::string, Tenant> tenants_;
  double clock_ = 0;  // the clock of the tenant served last, when its turn began
  std::uint64_t arrivals_ = 0;
  std::size_t size_ = 0;
};

}  // namespace precis
