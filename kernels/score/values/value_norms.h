// The size of a token's contribution to the output, per KV head: the norms of CriticalKV, VATP,
// LAVa and Defensive (policies/scores.md, "Norms of values").
#pragma once

#include <vector>

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// [num_kv_heads, n]. kL1Exact and kL2Gram: the mean over the query heads g of the group of ||v
// W_O[g]||_1, or of sqrt(v^T Gram[g] v); [n, width] is never in memory. kVL1: ||v||_1. `input` must
// have the inputs that the norm needs.
std::vector<float> value_norms(const CpuContext& context, ValueNorm norm, const LayerInput& input);

// [num_heads, n]: ||v||_1, the result of value_norms() for kVL1.
std::vector<float> value_l1_norms(const CpuContext& context, const HeadsView& values);

}  // namespace precis::kernels
