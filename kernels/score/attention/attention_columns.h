// The common mechanism of every attention scorer: softmax weights of the observing queries over a
// layer's tokens, reduced as the recipe says (attention_op.h).
#pragma once

#include <vector>

#include "kernels/common/thread_pool.h"
#include "kernels/score/attention/attention_op.h"
#include "precis/kernels.h"

namespace precis::kernels {

// Which results to compute besides the reduced columns.
struct AttentionWants {
  bool mean = false;      // AttentionColumns::mean
  bool moments = false;   // AttentionColumns::entropy and variance
  bool row_mass = false;  // a pooled row is scaled to the mass it had (DefensiveKV)
};

struct AttentionColumns {
  AttentionOp op;
  std::vector<float> scores;  // [num_kv_heads, op.columns]
  std::vector<float> mean;    // [num_kv_heads, op.columns]: over rows and group, not pooled
  // Over all query heads and columns, from unpooled weights: the sum over rows of -A ln A, and the
  // sum of the rows' unbiased variances. In double, chunks of columns in order.
  double entropy = 0, variance = 0;
};

// `input` has passed check, so it has queries. The result does not depend on the number of threads.
AttentionColumns attention_columns(const CpuContext& context, const Recipe& recipe,
                                   const LayerInput& input, const AttentionWants& wants);

}  // namespace precis::kernels
