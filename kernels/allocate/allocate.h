// Stage allocate: decides in which order a layer's heads take the layer's seats.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// The layer's first `slots` turns, at most as many as it has entries. Every protected entry joins
// before any ranked one, and heads take turns for the protected entries; then
//   uniform         heads take turns
//   flat, ada       contest() among the layer's heads
//   ada, blend      no order: each head's count at this number of slots, sums exact, head by head
// If the layers compete by score, `turns` gets the ranks of their entries instead of turns. Under a
// table it gets neither, because the profile decides everything.
Status allocate_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                    const LayerScores& scores, const RetentionOrders& orders, std::uint64_t slots,
                    LayerTurns& turns);

}  // namespace precis::kernels
