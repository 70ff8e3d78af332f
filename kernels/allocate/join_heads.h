// Joiners in which the heads of all layers share the segment's seats directly.
#pragma once

#include "precis/joiner.h"

namespace precis::kernels {

// Global flat: by score, with the recipe's guarantee.
std::unique_ptr<Joiner> join_competing_heads(const Recipe& recipe, const SegmentDims& dims,
                                             std::uint64_t entries);
// By a profile's table; every head's seats are known from the start.
std::unique_ptr<Joiner> join_tabled_heads(const Recipe& recipe, const SegmentDims& dims,
                                          std::uint64_t entries, const Profile& profile);

}  // namespace precis::kernels
