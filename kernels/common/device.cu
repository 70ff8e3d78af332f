#include "kernels/common/device.h"

#include <cuda_runtime.h>

#include <utility>

#include "kernels/common/device_code.cuh"

namespace precis::kernels {
namespace {

// The only translation of CUDA errors.
Status status_of(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // clears the error, which is reported here only
  const std::string message =
      std::string(what) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  switch (error) {
    case cudaErrorMemoryAllocation: return Status::out_of_space(message);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorNotSupported:
    case cudaErrorNoKernelImageForDevice: return Status::unsupported(message);
    default: return Status::internal(message);
  }
}

cudaStream_t cuda_stream(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

__global__ void do_nothing() {}

}  // namespace

Status try_device() {
  PRECIS_ASSIGN(Stream stream, Stream::create());
  PRECIS_TRY(launch("trying the device", do_nothing, 1, 1, 0, stream));
  return stream.wait();
}

Status use_device(int ordinal) {
  int count = 0;
  PRECIS_TRY(status_of(cudaGetDeviceCount(&count), "looking for CUDA devices"));
  if (ordinal < 0 || ordinal >= count) {
    return Status::unsupported("CUDA device " + std::to_string(ordinal) + " of " +
                               std::to_string(count) + " does not exist");
  }
  return status_of(cudaSetDevice(ordinal), "choosing CUDA device " + std::to_string(ordinal));
}

Result<std::string> device_name(int ordinal) {
  cudaDeviceProp properties;
  PRECIS_TRY(
      status_of(cudaGetDeviceProperties(&properties, ordinal), "asking for the device's name"));
  return std::string(properties.name);
}

Status check_device_memory(int ordinal, const std::byte* data, std::uint64_t size_bytes) {
  for (const std::uint64_t at : {std::uint64_t{0}, size_bytes - 1}) {
    cudaPointerAttributes found{};
    PRECIS_TRY(status_of(cudaPointerGetAttributes(&found, data + at), "asking whose memory it is"));
    const bool device = found.type == cudaMemoryTypeDevice || found.type == cudaMemoryTypeManaged;
    if (device && found.device == ordinal) continue;
    return Status::invalid("byte " + std::to_string(at) + " of " + std::to_string(size_bytes) +
                           " is not in the memory of CUDA device " + std::to_string(ordinal) +
                           (device ? ", but of " + std::to_string(found.device) : ""));
  }
  return {};
}

Result<CurrentDevice> CurrentDevice::set(int ordinal) {
  int before = ordinal;
  // If the machine has no device, use_device() below reports it.
  if (cudaGetDevice(&before) != cudaSuccess) (void)cudaGetLastError();
  if (before == ordinal) {
    PRECIS_TRY(use_device(ordinal));
    return CurrentDevice(-1);
  }
  CurrentDevice current(before);
  PRECIS_TRY(use_device(ordinal));
  return Result<CurrentDevice>(std::move(current));
}
CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

Status keep_device_memory(int ordinal, std::size_t bytes) {
  cudaMemPool_t pool{};
  PRECIS_TRY(status_of(cudaDeviceGetDefaultMemPool(&pool, ordinal), "asking for the memory pool"));
  std::uint64_t threshold = bytes;
  return status_of(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
                   "setting what the memory pool keeps");
}

Status launch_status(int error, std::string_view what) {
  return status_of(static_cast<cudaError_t>(error), what);
}

Result<Stream> Stream::create() {
  Stream made;
  cudaStream_t stream = nullptr;
  PRECIS_TRY(status_of(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream"));
  made.handle_ = stream;
  cudaEvent_t done = nullptr;
  constexpr unsigned kFlags = cudaEventBlockingSync | cudaEventDisableTiming;
  PRECIS_TRY(status_of(cudaEventCreateWithFlags(&done, kFlags), "event"));
  made.done_ = done;
  return Result<Stream>(std::move(made));
}
Stream::Stream(Stream&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), done_(std::exchange(other.done_, nullptr)) {}
Stream::~Stream() {
  // wait() has reported failures, or no caller waits for them any more.
  if (done_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(done_));
  if (handle_ == nullptr) return;
  cudaStreamSynchronize(cuda_stream(*this));
  cudaStreamDestroy(cuda_stream(*this));
}
Status Stream::wait() {
  // Waits for an event, because waiting for a stream directly keeps a core busy.
  const auto done = static_cast<cudaEvent_t>(done_);
  if (cudaEventRecord(done, cuda_stream(*this)) == cudaSuccess) {
    return status_of(cudaEventSynchronize(done), "stream");
  }
  return status_of(cudaStreamSynchronize(cuda_stream(*this)), "stream");
}

Result<DeviceBuffer> DeviceBuffer::allocate(std::size_t size_bytes, const Stream& stream) {
  DeviceBuffer buffer;
  if (size_bytes == 0) return Result<DeviceBuffer>(std::move(buffer));
  void* data = nullptr;
  PRECIS_TRY(status_of(cudaMallocAsync(&data, size_bytes, cuda_stream(stream)),
                       "allocating " + std::to_string(size_bytes) + " B of device memory"));
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_bytes_ = size_bytes;
  buffer.stream_ = stream.native();
  return Result<DeviceBuffer>(std::move(buffer));  // nvcc does not move by itself
}
DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFreeAsync(data_, static_cast<cudaStream_t>(stream_));
}

Status DeviceBuffer::copy_from(const HeadsView& source, const Stream& stream) {
  PRECIS_CHECK(source.size_bytes() <= size_bytes_);
  if (source.num_heads <= 1 || source.head_stride_bytes == source.head_bytes()) {
    return copy_from(Bytes(source.data, source.size_bytes()), stream);
  }
  // Head by head: a two-dimensional copy has a limit on the distance of its rows.
  for (std::uint32_t h = 0; h < source.num_heads; ++h) {
    PRECIS_TRY(
        status_of(cudaMemcpyAsync(data_ + h * source.head_bytes(), source.head(h),
                                  source.head_bytes(), cudaMemcpyHostToDevice, cuda_stream(stream)),
                  "copying heads to the device"));
  }
  return {};
}
Status DeviceBuffer::copy_from(Bytes source, const Stream& stream) {
  PRECIS_CHECK(source.size() <= size_bytes_);
  if (source.empty()) return {};
  return status_of(cudaMemcpyAsync(data_, source.data(), source.size(), cudaMemcpyHostToDevice,
                                   cuda_stream(stream)),
                   "copying to the device");
}
Status DeviceBuffer::copy_from(const DeviceBuffer& source, const Stream& stream) {
  PRECIS_CHECK(source.size_bytes() <= size_bytes_);
  if (source.size_bytes() == 0) return {};
  return status_of(cudaMemcpyAsync(data_, source.data_, source.size_bytes_,
                                   cudaMemcpyDeviceToDevice, cuda_stream(stream)),
                   "copying on the device");
}
Status DeviceBuffer::copy_to(MutableBytes target, const Stream& stream, std::size_t from) const {
  PRECIS_CHECK(from <= size_bytes_ && target.size() <= size_bytes_ - from);
  if (target.empty()) return {};
  return status_of(cudaMemcpyAsync(target.data(), data_ + from, target.size(),
                                   cudaMemcpyDeviceToHost, cuda_stream(stream)),
                   "copying from the device");
}
Status DeviceBuffer::clear(const Stream& stream) {
  return status_of(cudaMemsetAsync(data_, 0, size_bytes_, cuda_stream(stream)),
                   "clearing device memory");
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}
Result<MutableBytes> PinnedBuffer::take(std::size_t size_bytes) {
  if (size_bytes > size_bytes_) {
    void* data = nullptr;
    PRECIS_TRY(status_of(cudaMallocHost(&data, size_bytes),
                         "allocating " + std::to_string(size_bytes) + " B of pinned memory"));
    if (data_ != nullptr) cudaFreeHost(data_);
    data_ = static_cast<std::byte*>(data);
    size_bytes_ = size_bytes;
  }
  return MutableBytes(data_, size_bytes);
}

Result<PinnedMemory> PinnedMemory::pin(MutableBytes memory) {
  PRECIS_TRY(status_of(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable),
                       "pinning " + std::to_string(memory.size()) + " B of host memory"));
  return PinnedMemory(memory.data());
}
PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) cudaHostUnregister(data_);
}

}  // namespace precis::kernels
