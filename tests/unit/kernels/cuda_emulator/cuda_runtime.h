// The part of CUDA that our kernels use, for a host without a GPU. It comes before CUDA's own
// header in the include path of the emulated library, whose sources are the same .cu files that
// nvcc compiles. Device memory is host memory. A stream does its work at once, but its copies to
// the host complete only when it is waited for. A kernel may use no part of CUDA that is missing
// here.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/unit/kernels/cuda_emulator/grid.h"
#include "tests/unit/kernels/cuda_emulator/mma.h"

#define __global__
#define __device__
#define __host__
#define __noinline__
#define __launch_bounds__(...)

using dim3 = precis::cuda_emulator::Extent;

// The running thread's indices and extents.
inline precis::cuda_emulator::Index &threadIdx = precis::cuda_emulator::thread_index,
                                    &blockIdx = precis::cuda_emulator::block_index;
inline dim3 &blockDim = precis::cuda_emulator::block_extent,
            &gridDim = precis::cuda_emulator::grid_extent;
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

// Operations of all threads of a block, or of a warp.
inline void __syncthreads() { precis::cuda_emulator::sync_block(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  precis::cuda_emulator::exchange("__syncwarp", mask, 0);
}
namespace precis::cuda_emulator {
template <typename T>
T word_of(const char* name, unsigned mask, T value, std::uint32_t from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  // A lane that would read beyond the warp keeps its own word.
  const std::uint64_t* words = exchange(name, mask, word);
  std::memcpy(&value, &words[from < kWarpLanes ? from : lane()], sizeof value);
  return value;
}
}  // namespace precis::cuda_emulator
template <typename T>
T __shfl_sync(unsigned mask, T value, int from) {
  return precis::cuda_emulator::word_of("__shfl_sync", mask, value,
                                        static_cast<std::uint32_t>(from) % 32);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return precis::cuda_emulator::word_of(
      "__shfl_xor_sync", mask, value,
      precis::cuda_emulator::lane() ^ static_cast<std::uint32_t>(bits));
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned steps) {
  return precis::cuda_emulator::word_of("__shfl_up_sync", mask, value,
                                        precis::cuda_emulator::lane() - steps);
}
inline unsigned __match_any_sync(unsigned mask, unsigned value) {
  const std::uint64_t* words = precis::cuda_emulator::exchange("__match_any_sync", mask, value);
  unsigned equal = 0;
  for (unsigned i = 0; i < 32; ++i) equal |= static_cast<unsigned>(words[i] == value) << i;
  return equal;
}
inline unsigned __ballot_sync(unsigned mask, bool value) {
  const std::uint64_t* words = precis::cuda_emulator::exchange("__ballot_sync", mask, value);
  unsigned set = 0;
  for (unsigned i = 0; i < 32; ++i) set |= static_cast<unsigned>(words[i]) << i;
  return set;
}
// Threads are never interrupted, so a plain addition is atomic.
template <typename T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}

inline int __popc(unsigned x) { return std::popcount(x); }
template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}

// The runtime library.
enum cudaError_t {
  cudaSuccess,
  cudaErrorMemoryAllocation,
  cudaErrorNoDevice,
  cudaErrorInsufficientDriver,
  cudaErrorInvalidDevice,
  cudaErrorNoKernelImageForDevice,
  cudaErrorNotSupported,
  cudaErrorLaunchFailure,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold };
using cudaStream_t = struct EmulatedStream*;
using cudaEvent_t = struct EmulatedEvent*;
inline constexpr unsigned cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
using cudaMemPool_t = struct EmulatedMemPool*;
inline constexpr unsigned cudaHostRegisterPortable = 1;
inline constexpr unsigned cudaStreamNonBlocking = 1;
struct cudaDeviceProp {
  char name[256];
};
enum cudaMemoryType {
  cudaMemoryTypeUnregistered,
  cudaMemoryTypeHost,
  cudaMemoryTypeDevice,
  cudaMemoryTypeManaged,
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);  // of a launch: the error of run_grid()
cudaError_t cudaGetDeviceCount(int* count);         // always 1
cudaError_t cudaSetDevice(int ordinal);
cudaError_t cudaGetDevice(int* ordinal);
// Memory from cudaMallocAsync() is device memory; all other memory is Unregistered.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal);
cudaError_t cudaGetLastError();  // of launches and allocations; clears it
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int ordinal);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr name, void* value);
// All new memory is filled with NaN.
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream);
cudaError_t cudaMallocHost(void** data, std::size_t bytes);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* data);
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);

namespace precis::cuda_emulator {
cudaError_t launched(std::string error);  // keeps it for cudaGetLastError()
// This many allocations of device memory succeed, the next one fails, and all later ones succeed.
inline std::atomic<int> allocations_left = -1;
// Simulates the state after a sticky CUDA error: no call works any more.
inline std::atomic<bool> lost = false;
}  // namespace precis::cuda_emulator
template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args... args) {
  return precis::cuda_emulator::launched(precis::cuda_emulator::run_grid(
      config->gridDim, config->blockDim, config->dynamicSmemBytes, [&] { kernel(args...); }));
}
