// Stage score: how much a head will miss each token. f32 inside, whatever the inputs' dtype.
#pragma once

#include "kernels/common/thread_pool.h"
#include "precis/kernels.h"

namespace precis::kernels {

// scores: [num_kv_heads, n] f32, higher = keep (policies.md, one section per scorer).
//   streaming_llm     the token's absolute position
//   window_attention  attention of the last queries; +inf for the tokens they stand at
//   knorm             -||k||
//   keydiff           -cos(k, mean of unit keys)
//   lagkv             spread in the next partition's range, K and V; +inf for sinks and tail
//   external          as pushed
// `input` has passed check. Results depend on the machine's instruction set in their last bits,
// never on the number of threads.
Status score_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                 std::span<float> scores);

// One scorer each; shapes as above.
void score_window_attention_cpu(const CpuContext& context, const Recipe& recipe,
                                const LayerInput& input, std::span<float> scores);
void score_knorm_cpu(const CpuContext& context, const LayerInput& input, std::span<float> scores);
void score_keydiff_cpu(const CpuContext& context, const LayerInput& input, std::span<float> scores);
void score_lagkv_cpu(const CpuContext& context, const Recipe& recipe, const LayerInput& input,
                     std::span<float> scores);

}  // namespace precis::kernels
