// The limits and settings of the parts of a service that a configuration names.
#pragma once

#include "cachesvc/base/config.h"
#include "cachesvc/capacity/capacity_manager.h"
#include "cachesvc/pipeline/consolidator.h"
#include "cachesvc/pipeline/put_room.h"

namespace precis {

DiskQuota::Limits disk_limits(const Config& config);
PutRoom::Limits memory_limits(const Config& config);
Catalog::PinnedLimits pinned_limits(const Config& config);
// The catalog's memory for segments, in addition to the arena.
std::uint64_t kept_bytes_max(std::uint64_t arena_bytes);
// The next three: of a valid configuration.
CapacityManager::Settings capacity_settings(const Config& config);
Consolidator::Settings consolidator_settings(const Config& config);
BudgetDefaults budget_defaults(const Config& config);

}  // namespace precis
