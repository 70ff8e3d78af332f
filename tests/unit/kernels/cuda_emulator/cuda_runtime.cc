#include "tests/unit/kernels/cuda_emulator/cuda_runtime.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

// A copy to the host that is not complete yet. It completes only when the stream is waited for, so
// host code that reads without waiting finds the old bytes.
struct Arrival {
  void* to;
  std::vector<std::byte> bytes;
};
struct EmulatedStream {
  std::vector<Arrival> arrivals;
};
struct EmulatedEvent {
  cudaStream_t recorded_on = nullptr;
};

namespace {

// Per calling thread, as in CUDA.
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string last_message;

// Device memory in use: begin and end.
std::mutex allocating;
std::map<const void*, const std::byte*>& allocated() {
  static std::map<const void*, const std::byte*> all;
  return all;
}

}  // namespace

namespace precis::cuda_emulator {

cudaError_t launched(std::string error) {
  if (error.empty()) return cudaSuccess;
  last_message = std::move(error);
  return last_error = cudaErrorLaunchFailure;
}

}  // namespace precis::cuda_emulator

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    default: return "an error that is never emulated";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? last_message.c_str() : "emulated";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal) {
  if (precis::cuda_emulator::lost) return precis::cuda_emulator::launched("the device is lost");
  return ordinal == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDevice(int* ordinal) {
  *ordinal = 0;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  const std::lock_guard lock(allocating);
  const auto behind = allocated().upper_bound(data);
  const bool device = behind != allocated().begin() &&
                      static_cast<const std::byte*>(data) < std::prev(behind)->second;
  *attributes = {device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered, 0};
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  std::strcpy(properties->name, "emulated");
  return cudaSetDevice(ordinal);
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  for (const Arrival& arrival : std::exchange(stream->arrivals, {})) {
    std::memcpy(arrival.to, arrival.bytes.data(), arrival.bytes.size());
  }
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->recorded_on = stream;
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return cudaStreamSynchronize(event->recorded_on);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int ordinal) {
  *pool = nullptr;
  return cudaSetDevice(ordinal);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }

cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t) {
  if (precis::cuda_emulator::allocations_left-- == 0) {
    return last_error = cudaErrorMemoryAllocation;  // kept, as CUDA keeps it
  }
  const cudaError_t made = cudaMallocHost(data, bytes);
  if (made != cudaSuccess) return made;
  const std::lock_guard lock(allocating);
  allocated()[*data] = static_cast<const std::byte*>(*data) + bytes;
  return made;
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t) {
  const std::lock_guard lock(allocating);
  allocated().erase(data);
  return cudaFreeHost(data);
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  *data = std::malloc(bytes);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }

cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t) {
  if (bytes > 0) std::memset(data, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (kind == cudaMemcpyDeviceToHost) {
    const auto* first = static_cast<const std::byte*>(from);
    stream->arrivals.push_back({to, {first, first + bytes}});
  } else {
    std::memcpy(to, from, bytes);
  }
  return cudaSuccess;
}
