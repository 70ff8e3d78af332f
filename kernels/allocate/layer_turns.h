// A layer's turns from the ranks of its heads, on any backend.
#pragma once

#include <cstdint>

#include "kernels/allocate/contest.h"
#include "precis/kernels.h"

namespace precis::kernels {

// In both functions `turns` has the layer's sizes and protected count set; `slots` is at most the
// number of the layer's entries.

// How many ranks of each head make_turns() reads, best first; 0 if heads take turns or a profile
// decides everything.
std::uint64_t ranks_wanted(const Recipe& recipe, const LayerTurns& turns, std::uint64_t slots);

// Fills turns.heads or turns.ranks, as allocate.h says. ranks: [num_kv_heads][ranks_wanted(), or
// fewer if the head has fewer ranked tokens]; may be empty if none are wanted.
void make_turns(const Recipe& recipe, std::uint64_t slots, Ranks ranks, LayerTurns& turns);

}  // namespace precis::kernels
