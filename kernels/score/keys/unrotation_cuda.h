// The CUDA implementation of Unrotation (unrotation.h): the tables of turns that kvdiff needs,
// computed on the device from RoPE's frequencies. Includes no CUDA header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/score/keys/key_scores_cuda.h"

namespace precis::kernels {

struct UnrotationDevice {
  const double* frequencies;  // [pairs], device memory
  std::uint32_t pairs, num_tokens;
};

// 8 B per pair of every 64th token, and of 64 tokens.
std::size_t unrotation_workspace_bytes(const UnrotationDevice& task);

// The tables that launch_unrotation() writes; their `pairs` is 0 if `task` has none.
TurnsDevice unrotation_turns(const UnrotationDevice& task, void* workspace);

// Enqueues on `stream`; neither allocates nor waits. Computes each turn from its own angle, in f64.
Status launch_unrotation(const UnrotationDevice& task, void* workspace, Stream& stream);

}  // namespace precis::kernels
