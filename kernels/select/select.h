// Stage select: the retention order of every head.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// scores: [num_kv_heads, n] f32. Protected tokens first (sinks ascending, then the recent ones from
// the last backwards), then the ranked:
//   topk            (score desc, token asc)
//   partition_topk  (rank within partition asc, partition asc), ranks as in topk (D9)
// Equal scores give equal orders on every backend.
Status select_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                  std::span<const float> scores, RetentionOrders& orders);

}  // namespace precis::kernels
