// The CUDA twin of score_cpu (score.h), whole layers at once: which recipes it serves, workspace
// and launcher. No CUDA header shows here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/device.h"
#include "precis/recipe.h"
#include "precis/types.h"

namespace precis::kernels {

// A layer's inputs in device memory: packed, at multiples of 16 bytes; null where they were not
// pushed. LayerInput says what each of them is.
struct LayerDevice {
  std::uint32_t layer = 0, num_layers = 1, begin = 0;
  std::uint32_t num_kv_heads = 0, group = 1, num_tokens = 0, head_dim = 0;
  std::uint32_t pushed = 0;  // queries per query head
  Dtype dtype = Dtype::kF32;
  const void *keys = nullptr, *values = nullptr, *queries = nullptr;
  const float* lse = nullptr;       // [num_q_heads, pushed]
  const float* external = nullptr;  // [num_kv_heads, num_tokens], LayerInput::scores
  const float *query_mean = nullptr, *query_covariance = nullptr;
  const void* o_proj = nullptr;  // [num_q_heads, head_dim, o_proj_width]
  std::uint32_t o_proj_width = 0;
  Dtype o_proj_dtype = Dtype::kF32;
  const float* gram = nullptr;               // [num_q_heads, head_dim, head_dim]
  const double* rope_frequencies = nullptr;  // [rope_pairs], device memory too
  std::uint32_t rope_pairs = 0;
};

// Device memory, packed.
struct ScoresDevice {
  float* scores = nullptr;  // [num_kv_heads, num_tokens], written
  float* second = nullptr;  // the same; written where the selector is kTwoStage or kThreshold
  float* weight = nullptr;  // [1], written where the layer allocator is kPreference or kEntropy
};

// Whether the device scores this recipe; what it does not, the CPU does.
bool scores_on_device(const Recipe& recipe);

// Of `layer` its sizes, and whether the log-sum-exps of its queries are null.
std::size_t score_workspace_bytes(const Recipe& recipe, const LayerDevice& layer);

// Enqueues on `stream`; neither allocates nor waits. `layer` holds what has passed check on the
// host. Scores agree with the CPU's within the rounding of their sums
// (tests/unit/kernels/gpu_score_test.cc states the bounds) and repeat bit for bit. kUnsupported,
// nothing written, for recipes that scores_on_device() refuses.
Status launch_score(const Recipe& recipe, const LayerDevice& layer, void* workspace,
                    const ScoresDevice& out, Stream& stream);

}  // namespace precis::kernels
