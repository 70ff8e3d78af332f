// Stage allocate: decides in which order a layer's heads take the layer's seats.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// Computes the layer's first `slots` turns; `slots` is at most its number of entries. All protected
// entries join before the ranked entries, and heads take turns for them; then
//   uniform         heads take turns
//   flat, ada       contest() among the layer's heads
//   ada, blend      no order: each head's count at this number of slots, written head by head
// If the heads of all layers compete by score, `turns` gets the ranks of the entries instead of
// turns. Under a profile's table it gets neither, because the profile decides everything.
Status allocate_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                    const LayerScores& scores, const RetentionOrders& orders, std::uint64_t slots,
                    LayerTurns& turns);

}  // namespace precis::kernels
