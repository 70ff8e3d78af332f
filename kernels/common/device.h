// The few parts of CUDA that backends need, in classes whose headers do not include CUDA's.
// device.cu is the only file that turns a cudaError_t into a Status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "precis/status.h"
#include "precis/view.h"

namespace precis::kernels {

// Makes `ordinal` this thread's device. kUnsupported, with the number of devices, if it does not
// exist.
Status use_device(int ordinal);
Result<std::string> device_name(int ordinal);
// kInvalidArgument unless the first and the last of `size_bytes` bytes are in device `ordinal`'s
// memory.
Status check_device_memory(int ordinal, const std::byte* data, std::uint64_t size_bytes);
// Tests that this build has code for the current device; kUnsupported if not.
Status try_device();
// Lets the process keep up to `bytes` of released device memory for later allocations.
Status keep_device_memory(int ordinal, std::size_t bytes);

// use_device() for the lifetime of the object, for threads that the caller does not own. Must be
// destroyed in the thread that created it.
class CurrentDevice {
 public:
  static Result<CurrentDevice> set(int ordinal);
  CurrentDevice(CurrentDevice&& other) noexcept : before_(std::exchange(other.before_, -1)) {}
  CurrentDevice& operator=(CurrentDevice&&) = delete;
  ~CurrentDevice();

 private:
  explicit CurrentDevice(int before) : before_(before) {}
  int before_;  // -1: the device was not changed
};

// Converts the cudaError_t of a launch; every launcher returns this.
Status launch_status(int error, std::string_view what);

// A CUDA stream on the current device. Movable; the destructor waits for the stream's work.
class Stream {
 public:
  static Result<Stream> create();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  ~Stream();
  // Waits for all work of the stream; the thread sleeps meanwhile.
  Status wait();
  void* native() const { return handle_; }  // cudaStream_t

 private:
  Stream() = default;
  void *handle_ = nullptr, *done_ = nullptr;  // done_: cudaEvent_t
};

// Memory on the current device, allocated from its pool and released to it in stream order, without
// waiting. Must not outlive the stream. kOutOfSpace if the device has too little.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> allocate(std::size_t size_bytes, const Stream& stream);
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer(std::move(other)).swap(*this);
    return *this;
  }
  ~DeviceBuffer();
  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::size_t size_bytes() const { return size_bytes_; }

  // All of these enqueue on `stream`; host memory must stay until the stream has been waited for.
  Status copy_from(const HeadsView& source, const Stream& stream);  // packs the heads
  Status copy_from(Bytes source, const Stream& stream);
  Status copy_from(const DeviceBuffer& source, const Stream& stream);
  Status copy_to(MutableBytes target, const Stream& stream, std::size_t from = 0) const;
  Status clear(const Stream& stream);  // all zero

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(stream_, other.stream_);
  }
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  void* stream_ = nullptr;
};

// Host memory that the device accesses directly, so that copies do not block the host. It only
// grows.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer();
  // At least `size_bytes`, with undefined content. No copy may be in progress.
  Result<MutableBytes> take(std::size_t size_bytes);

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// Lets the device access the caller's host memory directly, until destroyed.
class PinnedMemory {
 public:
  static Result<PinnedMemory> pin(MutableBytes memory);
  PinnedMemory(PinnedMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  PinnedMemory& operator=(PinnedMemory&&) = delete;
  ~PinnedMemory();

 private:
  explicit PinnedMemory(std::byte* data) : data_(data) {}
  std::byte* data_;
};

}  // namespace precis::kernels
