// Two clusters of one name must not use one pool of the shared storage: each would take the other's
// shards. So the pool has the id of its cluster.
#pragma once

#include <string>

#include "cachesvc/shared/shared_tier.h"

namespace precis {

// [blocking] Writes the id if the pool has none. kVersionMismatch if it has another cluster's;
// kUnavailable if the cluster has no id yet.
Status claim_pool(SharedTier& tier, const std::string& cluster_id);

}  // namespace precis
