// The CUDA implementation of score_cpu (score.h), whole layers at once: supported recipes,
// workspace and launcher. Includes no CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/device.h"
#include "precis/recipe.h"
#include "precis/types.h"

namespace precis::kernels {

// A layer's inputs in device memory: packed, aligned to 16 bytes; null if they were not pushed.
// LayerInput describes each of them.
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
  const float* probe = nullptr;              // turned_probe()
  const double* rope_frequencies = nullptr;  // [rope_pairs], device memory too
  std::uint32_t rope_pairs = 0;
};

// Device memory, packed.
struct ScoresDevice {
  float* scores = nullptr;  // output, [num_kv_heads, num_tokens]
  float* second = nullptr;  // the same; written if the selector is kTwoStage or kThreshold
  float* weight = nullptr;  // output, [1]; written if the layer allocator is kPreference or
                            // kEntropy
};

// Whether the device scores this recipe; the CPU scores the others.
bool scores_on_device(const Recipe& recipe);

// Reads the sizes of `layer`, and whether the log-sum-exps of its queries are null.
std::size_t score_workspace_bytes(const Recipe& recipe, const LayerDevice& layer);

// Enqueues on `stream`; neither allocates nor waits. `layer` holds input that passed check on the
// host. Scores agree with the CPU's within the rounding of their sums
// (tests/unit/kernels/gpu_score_test.cc states the bounds) and repeat bit for bit. kUnsupported,
// with nothing written, for recipes that scores_on_device() refuses.
Status launch_score(const Recipe& recipe, const LayerDevice& layer, void* workspace,
                    const ScoresDevice& out, Stream& stream);

}  // namespace precis::kernels
