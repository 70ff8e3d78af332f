// Evicts the least recently used key first: the baseline of the eviction bench, and a policy whose
// victims tests can foresee.
#pragma once

#include <list>
#include <map>
#include <memory>

#include "cachesvc/store/eviction_policy.h"
#include "precis/status.h"

namespace precis::testing {

class LruPolicy final : public EvictionPolicy {
 public:
  void added(const HotKey& key, std::size_t) override {
    order_.push_back(key);
    const bool fresh = places_.emplace(key, std::prev(order_.end())).second;
    PRECIS_CHECK(fresh);
  }
  void used(const HotKey& key) override { order_.splice(order_.end(), order_, places_.at(key)); }
  void removed(const HotKey& key) override {
    const auto place = places_.find(key);
    PRECIS_CHECK(place != places_.end());
    order_.erase(place->second);
    places_.erase(place);
  }
  std::optional<HotKey> victim(const std::function<bool(const HotKey&)>& may_go) override {
    for (const HotKey& key : order_) {
      if (may_go(key)) return key;
    }
    return std::nullopt;
  }

 private:
  std::list<HotKey> order_;  // least recently used first
  std::map<HotKey, std::list<HotKey>::iterator> places_;
};

inline std::unique_ptr<EvictionPolicy> make_lru_policy() { return std::make_unique<LruPolicy>(); }

}  // namespace precis::testing
