// Removes what a tenant has stored, piece by piece.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cachesvc/catalog/catalog.h"

namespace precis {

// The removals of one step. `payload`: ids whose layers may be in the hot tier.
struct Purged {
  std::size_t rows = 0;
  msg::Removed removed;
  std::vector<SegmentId> payload;
};
// [blocking] Removes some of the tenant's sessions, else segments, else models, else what it has
// set as budgets. No rows: nothing is left. An error may come after some were removed.
Status purge_some(Catalog& catalog, const std::string& tenant, Purged& purged);

}  // namespace precis
