#include "kernels/score/widened_rows_cuda.h"

#include <algorithm>

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"

namespace precis::kernels {
namespace {

__global__ void widen(const std::uint8_t* from, std::uint64_t count, std::uint16_t* to) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    to[i] = bf16_of_f8(from[i]);
  }
}

}  // namespace

Status launch_widen(const void* from, std::uint64_t count, void* to, Stream& stream) {
  const std::uint32_t blocks = std::min(ceil_div(count, kElementwiseThreads), kCheckBlocksMax);
  return launch("widen", widen, blocks, kElementwiseThreads, 0, stream,
                static_cast<const std::uint8_t*>(from), count, static_cast<std::uint16_t*>(to));
}

}  // namespace precis::kernels
