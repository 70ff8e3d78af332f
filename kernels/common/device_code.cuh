// Included by kernel sources: CUDA, and wrappers for syntax that only nvcc accepts, so that a host
// compiler can build the sources too (tests/unit/kernels/cuda_emulator runs them there).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "kernels/common/device.h"
#include "kernels/common/element_op.h"
#include "precis/types.h"

namespace precis::kernels {

inline constexpr std::uint32_t kWarp = 32;
inline constexpr std::uint32_t kWholeWarp = 0xffffffffu;

// The block's shared memory, of the size given to launch(), seen as T. A kernel has one such
// allocation: lay it out as a struct.
template <typename T>
__device__ T* shared_memory() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
#else
  return reinterpret_cast<T*>(cuda_emulator::shared_memory());
#endif
}

// Enqueues `kernel`, or nothing if the grid is empty. At most 48 KiB of shared memory.
template <typename... Params, typename... Args>
Status launch(std::string_view what, void (*kernel)(Params...), dim3 grid, dim3 block,
              std::size_t shared_bytes, const Stream& stream, const Args&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.native());
  return launch_status(cudaLaunchKernelEx(&config, kernel, args...), what);
}

constexpr std::uint32_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint32_t>((a + b - 1) / b);
}

// Element i of an array of `dtype`, widened.
__device__ inline float element(Dtype dtype, const void* data, std::uint64_t i) {
  if (dtype == Dtype::kF32) return static_cast<const float*>(data)[i];
  if (dtype == Dtype::kF8E4M3) return f32_of_f8(static_cast<const std::uint8_t*>(data)[i]);
  const std::uint16_t half = static_cast<const std::uint16_t*>(data)[i];
  return dtype == Dtype::kBf16 ? f32_of_bf16(half) : f32_of_f16(half);
}

}  // namespace precis::kernels
