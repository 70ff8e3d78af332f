// The lookups that matched, from the counters of requests.
#pragma once

#include <cstdint>
#include <string>

#include "cachesvc/base/metrics.h"

namespace precis {

// Since the service started.
struct HitCounts {
  std::uint64_t hits = 0;    // lookups that matched at least one token
  std::uint64_t tokens = 0;  // tokens that they matched
};
// All models of a tenant. Loop thread only.
HitCounts hits_of(const Metrics& metrics, const std::string& tenant);
// The tenant's models of this name. For a name equal to Labeled::kOther, the counts also include
// those of others that have no row of their own.
HitCounts hits_of(const Metrics& metrics, const std::string& tenant, const std::string& model);

}  // namespace precis
