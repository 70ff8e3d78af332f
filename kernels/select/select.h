// Stage select: the retention order of every head.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// Whether the selector orders by LayerScores::second too.
inline bool needs_second(const Recipe& recipe) {
  return recipe.selector == Selector::kTwoStage || recipe.selector == Selector::kThreshold;
}

// Protected tokens first (sinks ascending, then the recent ones from the last backwards), then the
// ranked:
//   topk            (score desc, token asc)
//   partition_topk  (rank within partition asc, partition asc), ranks as in topk (D9)
//   two_stage       as they enter while the head's budget grows by one: of a budget of b ranked
//                   entries the best first_stage(b) by score, the rest by scores.second (D7)
//   chunk           runs of ranked tokens by (mean over tokens of the sum over heads desc, token
//                   asc), tokens ascending inside; the same in every head
//   threshold       by scores.second until they hold the recipe's share of its sum, the entry that
//                   reaches it included, then by score (D20)
// Of the ranked as many as the layer's first `slots` turns may want, whoever takes them (at least).
// Wherever something ranks, ties go to the lower token and NaN last. Equal scores give equal orders
// on every backend.
Status select_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                  const LayerScores& scores, std::uint64_t slots, RetentionOrders& orders);

}  // namespace precis::kernels
