// The limits and settings of the parts of a service that a configuration names.
#pragma once

#include "cachesvc/base/config.h"
#include "cachesvc/capacity/capacity_manager.h"
#include "cachesvc/pipeline/put_room.h"

namespace precis {

DiskQuota::Limits disk_limits(const Config& config);
PutRoom::Limits memory_limits(const Config& config);
Catalog::PinnedLimits pinned_limits(const Config& config);
// The next two: of a valid configuration.
CapacityManager::Settings capacity_settings(const Config& config);
BudgetDefaults budget_defaults(const Config& config);

}  // namespace precis
