// The limits and settings of capacity that a configuration names.
#pragma once

#include "cachesvc/base/config.h"
#include "cachesvc/capacity/capacity_manager.h"
#include "cachesvc/pipeline/put_room.h"

namespace precis {

DiskQuota::Limits disk_limits(const Config& config);
PutRoom::Limits memory_limits(const Config& config);
Catalog::PinnedLimits pinned_limits(const Config& config);
CapacityManager::Settings capacity_settings(const Config& config);  // of a valid configuration

}  // namespace precis
