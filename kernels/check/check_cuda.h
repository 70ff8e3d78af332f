// The CUDA implementation of check's search for NaN and infinities. Includes no CUDA header.
#pragma once

#include <cstdint>

#include "kernels/common/device.h"
#include "precis/types.h"

namespace precis::kernels {

// Sets *found (device memory) to 1 if any of `count` elements at `rows` (device memory, aligned to
// 16 bytes) is not finite, else leaves it unchanged. Enqueues on `stream`; neither allocates nor
// waits.
Status launch_find_not_finite(Dtype dtype, const void* rows, std::uint64_t count,
                              std::uint32_t* found, Stream& stream);

}  // namespace precis::kernels
