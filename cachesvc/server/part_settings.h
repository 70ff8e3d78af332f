// The limits and settings that a configuration gives to the parts of a service.
#pragma once

#include <cstdint>
#include <string>

#include "cachesvc/base/config.h"
#include "cachesvc/capacity/capacity_manager.h"
#include "cachesvc/pipeline/consolidator.h"
#include "cachesvc/pipeline/put_room.h"

namespace precis {

// The limit of a tenant: its own, or else the one for all tenants. 0: none.
template <typename Limits>
std::uint64_t limit_of(const Limits& limits, const std::string& tenant) {
  const auto own = limits.of_tenant.find(tenant);
  return own == limits.of_tenant.end() ? limits.of_all : own->second;
}

DiskQuota::Limits disk_limits(const Config& config);
PutRoom::Limits memory_limits(const Config& config);
Catalog::PinnedLimits pinned_limits(const Config& config);
std::size_t descriptors_max();  // that this process may have open
// The catalog's memory for segments, in addition to the arena.
std::uint64_t kept_bytes_max(std::uint64_t arena_bytes);
// The next three functions require a valid configuration.
CapacityManager::Settings capacity_settings(const Config& config);
Consolidator::Settings consolidator_settings(const Config& config);
BudgetDefaults budget_defaults(const Config& config);

}  // namespace precis
