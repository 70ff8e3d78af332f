// The CUDA twins of the scorers that read no layer: streaming, random, external. No CUDA header
// shows here.
#pragma once

#include <cstdint>

#include "kernels/common/device.h"

namespace precis::kernels {

// Where scores stand: those of a layer's KV heads, [num_heads, num_tokens].
struct PlacesDevice {
  std::uint32_t layer, begin, num_heads, num_tokens;
  float* scores;  // device, written
};

// All enqueue on `stream`, and neither allocate nor wait. Scores equal the CPU's bit for bit.
Status launch_position_scores(const PlacesDevice& places, Stream& stream);
Status launch_random_scores(const PlacesDevice& places, std::uint32_t seed, Stream& stream);
// pushed: [num_heads, num_tokens], device.
Status launch_pushed_scores(const PlacesDevice& places, const float* pushed, Stream& stream);

}  // namespace precis::kernels
