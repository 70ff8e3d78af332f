// A layer's turns from the ranks of its heads, whichever backend ranked them.
#pragma once

#include <cstdint>

#include "kernels/allocate/contest.h"
#include "precis/kernels.h"

namespace precis::kernels {

// `turns` says the layer's sizes and how many tokens are protected. `slots`: at most its entries.

// How many ranks of each head make_turns() reads, from the best on; 0 where heads take turns or a
// profile says all.
std::uint64_t ranks_wanted(const Recipe& recipe, const LayerTurns& turns, std::uint64_t slots);

// Fills turns.heads or turns.ranks, as allocate.h says. ranks: [num_kv_heads][ranks_wanted(), or
// all that are ranked]; may be empty where none are wanted.
void make_turns(const Recipe& recipe, std::uint64_t slots, Ranks ranks, LayerTurns& turns);

}  // namespace precis::kernels
