// Competitors (the heads of a layer, or of all layers) take seats by their next-best ranked score,
// each with a guarantee (policies/budgets.md, "Ada with a guarantee"; D6).
#pragma once

#include <cstdint>
#include <vector>

#include "precis/recipe.h"

namespace precis::kernels {

// ranks[c][k]: score_rank() of competitor c's k-th best ranked entry; ties go to the lower index.
using Ranks = std::vector<std::vector<std::uint32_t>>;

// The competitor that takes each of the first `seats` ranked seats; fewer if the ranks run out.
//   flat            the best score
//   ada, guarantee  for an average of 1, 2, ... ranked entries: competitors below their guarantee
//                   take one each, then the best scores up to that average
// `protected_count`: the protected entries of each competitor, which some guarantees include.
std::vector<std::uint32_t> contest(const Recipe& recipe, const Ranks& ranks,
                                   std::uint32_t protected_count, std::uint64_t seats);

// How many of the best `seats` entries each competitor takes.
std::vector<std::uint64_t> flat_counts(const Ranks& ranks, std::uint64_t seats);

}  // namespace precis::kernels
