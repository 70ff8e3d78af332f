// The CUDA implementation of kvprobe: a launcher. Includes no CUDA header.
#pragma once

#include "kernels/common/device.h"
#include "kernels/score/keys/key_scores_cuda.h"

namespace precis::kernels {

// probe: turned_probe() on the device. out: [num_heads, num_tokens] f32 on the device. Enqueues on
// `stream`; neither allocates nor waits. Results agree with the CPU's within the rounding of their
// sums, and repeat bit for bit.
Status launch_kvprobe(const HeadRowsDevice& keys, const HeadRowsDevice& values,
                      const TurnsDevice& turns, const float* probe, float* out, Stream& stream);

}  // namespace precis::kernels
