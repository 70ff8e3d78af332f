// Stage allocate: which head takes each seat of a layer, and the cut at the layer's budget.
#pragma once

#include "precis/kernels.h"

namespace precis::kernels {

// `entries`: the segment's budget T. The layer's share is its seats <= T; never more than it has.
// Every protected entry joins before any ranked one, heads taking turns; then
//   uniform         heads take turns
//   ada, guarantee  for an average of 1, 2, ... ranked entries: heads short of their guarantee take
//                   one each, then the best remaining scores up to that average (D6)
//   ada, blend      no order: each head's count at this budget, sums exact; seats stay empty
// Ties between heads go to the lower head. Recipes that are cuts leave plan.seats empty.
// kInvalidArgument if the segment has more seats than 32 bits number.
Status allocate_cpu(const Recipe& recipe, const LayerInput& input, std::span<const float> scores,
                    const RetentionOrders& orders, std::uint64_t entries, LayerPlan& plan);

}  // namespace precis::kernels
