// A queue that is fair between tenants, and within a tenant between its connections. A tenant of
// weight 2 gets two turns where one of weight 1 gets one, however many connections either has. The
// connections of a tenant take turns, and what one connection asks for stays in its order.
//
// The turns of tenants follow start-time fair queueing: each turn moves the tenant's own clock by
// the turn's cost over its weight, and the tenant whose clock is behind is next. A tenant that
// comes back begins at the clock of whoever was served last, so it saves up nothing by waiting.
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

// A tenant's weight, at least 1. Copies share it, so a weight that is set anew counts at once for
// connections that are open and for what waits. Any thread.
class Weight {
 public:
  Weight() = default;          // 1, and not to be set
  Weight(std::uint32_t value)  // NOLINT: implicit on purpose
      : value_(std::make_shared<std::atomic<std::uint32_t>>(value)) {}
  std::uint32_t get() const { return value_ ? std::max<std::uint32_t>(1, *value_) : 1; }
  void set(std::uint32_t value) const { *value_ = value; }

 private:
  std::shared_ptr<std::atomic<std::uint32_t>> value_;
};

// On whose behalf something is done. By default nobody's, who counts as one tenant more.
struct Owner {
  Owner() = default;
  // No aggregate: g++ 12 destroys one twice that is made in an argument of what is co_awaited.
  Owner(std::string name, Weight tenant_weight = {}, const void* from = nullptr)  // NOLINT: {"a"}
      : tenant(std::move(name)), weight(std::move(tenant_weight)), connection(from) {}
  std::string tenant;
  Weight weight;
  const void* connection = nullptr;  // never looked into
};

// Not thread-safe. Work of one operation: proportional to the tenants and to the connections of one
// of them that have something in the queue.
template <typename Item>
class FairQueue {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  // `cost`: how many ordinary turns this one is as long as.
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

  // The item whose turn it is. Requires that there is one.
  Item& front() { return next().lanes.front().entries.front().item; }

  // Takes it out; the next turn is another one's.
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
    forget_idle();
    return std::move(entry.item);
  }

  // Takes out the first item that `is_meant`, whosever turn it is; none if there is no such.
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
        forget_idle();
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
    std::uint64_t arrived = 0;  // breaks ties: who came or was served first
    Weight weight;
    std::deque<Lane> lanes;  // the first one's first is the tenant's next
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

  // A tenant that has nothing here is kept while its clock says that it had more than its share.
  void forget_idle() {
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
  double clock_ = 0;  // of the tenant served last, when its turn began
  std::uint64_t arrivals_ = 0;
  std::size_t size_ = 0;
};

}  // namespace precis
