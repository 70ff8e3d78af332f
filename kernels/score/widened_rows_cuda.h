// Rows of f8_e4m3 in bf16, which represents each of them exactly. The device's scorers read these,
// so that they need no code for elements of 8 bits. Includes no CUDA header.
#pragma once

#include <cstdint>

#include "kernels/common/device.h"

namespace precis::kernels {

// Enqueues on `stream`; neither allocates nor waits. `from`, `to` [count]: device memory.
Status launch_widen(const void* from, std::uint64_t count, void* to, Stream& stream);

}  // namespace precis::kernels
