// The CUDA implementations of the scorers that do not read K or V: streaming, random, external.
// Includes no CUDA header.
#pragma once

#include <cstdint>

#include "kernels/common/device.h"

namespace precis::kernels {

// The output scores of a layer's KV heads, [num_heads, num_tokens].
struct PlacesDevice {
  std::uint32_t layer, begin, num_heads, num_tokens;
  float* scores;  // output, device memory
};

// All of these enqueue on `stream`, and neither allocate nor wait. Scores equal the CPU's bit for
// bit.
Status launch_position_scores(const PlacesDevice& places, Stream& stream);
Status launch_random_scores(const PlacesDevice& places, std::uint32_t seed, Stream& stream);
// pushed: [num_heads, num_tokens], device memory.
Status launch_pushed_scores(const PlacesDevice& places, const float* pushed, Stream& stream);

}  // namespace precis::kernels
