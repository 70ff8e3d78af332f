// Joiners of two levels: the layers share the segment's seats, and within a layer its turns decide
// which head takes each seat.
#pragma once

#include "precis/joiner.h"

namespace precis::kernels {

// Uniform and pyramid: every layer's seats are known from the start.
std::unique_ptr<Joiner> join_known_layers(const Recipe& recipe, const SegmentDims& dims,
                                          std::uint64_t entries);
// Preference and entropy: a layer's weight is known once it is added.
std::unique_ptr<Joiner> join_weighed_layers(const Recipe& recipe, const SegmentDims& dims,
                                            std::uint64_t entries);

}  // namespace precis::kernels
