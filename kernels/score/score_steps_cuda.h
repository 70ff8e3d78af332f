// score_cpu's steps over columns and norms, on CUDA: launchers of the steps between the passes over
// K and V. Includes no CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/device.h"
#include "kernels/common/segment_shape.h"

namespace precis::kernels {

// A layer's scores, [num_heads, num_tokens] on the device. The first `columns` tokens of each head
// are scored; the others are protected, and their scores are not changed.
struct ColumnsDevice {
  std::uint32_t num_heads, num_tokens, columns;
  float* scores;
};

// All of these enqueue on `stream`, and neither allocate nor wait; sums have fixed orders. norms:
// [num_heads, num_tokens] on the device.

// CriticalKV's second score (policies/scores.md): norms[i] becomes (scores[i] + epsilon) x
// norms[i], over all tokens.
Status launch_second_stage(const ColumnsDevice& columns, float epsilon, float* norms,
                           Stream& stream);
// TOVA: every head gets the layer's mean, over all tokens.
Status launch_share_mean(const ColumnsDevice& columns, Stream& stream);
// VATP: columns x norms.
Status launch_multiply(const ColumnsDevice& columns, const float* norms, Stream& stream);
// LAVa: columns x the head's largest norm over all tokens.
Status launch_multiply_by_largest(const ColumnsDevice& columns, const float* norms, Stream& stream);
// Defensive: raises columns below their head's mean to the mean.
Status launch_raise_to_mean(const ColumnsDevice& columns, Stream& stream);
// Defensive: norms as shares of a token's sum over the heads, over all tokens; 0 if all of them are
// 0.
Status launch_share_of_heads(const ColumnsDevice& columns, float* norms, Stream& stream);

// entropy_weight() (layer_weight.h) of the ranked tokens' scores. weight: output, [1].
std::size_t entropy_weight_workspace_bytes(const ColumnsDevice& columns);
Status launch_entropy_weight(const SegmentShape& shape, const ColumnsDevice& columns,
                             void* workspace, float* weight, Stream& stream);

}  // namespace precis::kernels
