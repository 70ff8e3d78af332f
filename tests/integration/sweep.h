// A sweep of a storage that the nodes of a cluster share, while no node runs.
#pragma once

#include <cstdint>
#include <set>

#include "cachesvc/shared/shared_tier.h"

namespace precis::testing {

// Takes these shards, which nobody holds, removes their orphans (cachesvc/server/orphans.h), and
// gives the shards up again. Returns how many objects were removed.
std::uint64_t sweep(SharedTier& tier, const std::set<std::uint32_t>& shards);

}  // namespace precis::testing
