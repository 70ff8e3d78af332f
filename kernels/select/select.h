// Stage select: the retention order of every head.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// Whether the selector also orders by LayerScores::second.
inline bool needs_second(const Recipe& recipe) {
  return recipe.selector == Selector::kTwoStage || recipe.selector == Selector::kThreshold;
}

// Protected tokens first (sinks ascending, then the recent ones from the last backwards), then the
// ranked tokens:
//   topk            (score desc, token asc)
//   partition_topk  (rank within partition asc, partition asc), ranks as in topk (D9)
//   two_stage       in the order in which they enter while the head's budget grows by one: a budget
//                   of b ranked entries has the best first_stage(b) by score, the rest by
//                   scores.second (D7)
//   chunk           runs of ranked tokens by (mean over tokens of the sum over heads desc, token
//                   asc), tokens ascending inside; the same in every head
//   threshold       by scores.second until they hold the recipe's share of its sum, the entry that
//                   reaches it included, then by score (D20)
// Each order lists at least as many ranked tokens as the layer's first `slots` turns may take from
// the head. In every ranking, ties go to the lower token, and NaN ranks last. Equal scores give
// equal orders on every backend.
Status select_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                  const LayerScores& scores, std::uint64_t slots, RetentionOrders& orders);

}  // namespace precis::kernels
