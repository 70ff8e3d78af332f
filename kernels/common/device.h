// The little of CUDA that backends need, behind opaque classes: no header of ours shows CUDA's.
// device.cu is the one file that turns a cudaError_t into a Status.
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

// Makes `ordinal` this thread's device. kUnsupported, with how many there are, if it is none.
Status use_device(int ordinal);
Result<std::string> device_name(int ordinal);
// kInvalidArgument unless the first and the last of so many bytes are of device `ordinal`'s memory.
Status check_device_memory(int ordinal, const std::byte* data, std::uint64_t size_bytes);
// Whether this build has code for the current device; kUnsupported if not.
Status try_device();
// Device memory that nobody holds stays with the process up to so much, for the next who asks.
Status keep_device_memory(int ordinal, std::size_t bytes);

// use_device() for as long as this lives, in threads that are somebody else's. Must end in the
// thread that began it.
class CurrentDevice {
 public:
  static Result<CurrentDevice> set(int ordinal);
  CurrentDevice(CurrentDevice&& other) noexcept : before_(std::exchange(other.before_, -1)) {}
  CurrentDevice& operator=(CurrentDevice&&) = delete;
  ~CurrentDevice();

 private:
  explicit CurrentDevice(int before) : before_(before) {}
  int before_;  // -1: it is the same
};

// Of a launch's cudaError_t: every launcher returns this.
Status launch_status(int error, std::string_view what);

// An order of work on the current device. Movable; waits for its work when destroyed.
class Stream {
 public:
  static Result<Stream> create();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  ~Stream();
  // For all of it; the thread sleeps meanwhile.
  Status wait();
  void* native() const { return handle_; }  // cudaStream_t

 private:
  Stream() = default;
  void *handle_ = nullptr, *done_ = nullptr;  // done_: cudaEvent_t
};

// Memory on the current device, taken from its pool and given back to it in the order of a stream's
// work, without waiting. Must not outlive the stream. kOutOfSpace if the device has too little.
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

  // All enqueue on `stream`; host memory must stay until it has been waited for.
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

// Host memory that the device reaches by itself, so that copies do not hold up the host. It keeps
// its size until more is asked for.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer();
  // At least `size_bytes`, whose content is of no meaning. No copy may be under way.
  Result<MutableBytes> take(std::size_t size_bytes);

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// Lets the device reach host memory of others by itself, until destroyed.
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
