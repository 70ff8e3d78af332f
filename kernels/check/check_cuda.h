// The CUDA twin of check's search for NaN and infinities. No CUDA header shows here.
#pragma once

#include <cstdint>

#include "kernels/common/device.h"
#include "precis/types.h"

namespace precis::kernels {

// Makes *found, device memory, 1 where any of `count` elements at `rows` (device memory, at a
// multiple of 16 bytes) is not finite, else leaves it. Enqueues on `stream`; neither allocates nor
// waits.
Status launch_find_not_finite(Dtype dtype, const void* rows, std::uint64_t count,
                              std::uint32_t* found, Stream& stream);

}  // namespace precis::kernels
