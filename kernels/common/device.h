// The little of CUDA that backends need, behind opaque classes: no header of ours shows CUDA's.
// device.cu is the one file that turns a cudaError_t into a Status.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "precis/status.h"
#include "precis/view.h"

namespace precis::kernels {

// Makes `ordinal` this thread's device. kUnsupported, with how many there are, if it is none.
Status use_device(int ordinal);
Result<std::string> device_name(int ordinal);

// The error of the last launch, if any: every launcher returns this.
Status launch_status(std::string_view what);

// An order of work on the current device. Movable; waits for its work when destroyed.
class Stream {
 public:
  static Result<Stream> create();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  ~Stream();
  Status wait();
  void* native() const { return handle_; }  // cudaStream_t

 private:
  explicit Stream(void* handle) : handle_(handle) {}
  void* handle_;
};

// Memory on the current device. kOutOfSpace if it has too little.
class DeviceBuffer {
 public:
  static Result<DeviceBuffer> allocate(std::size_t size_bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer();
  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

  // Both enqueue on `stream`; host memory must stay until it has been waited for.
  Status copy_from(const HeadsView& source, Stream& stream);  // packs the heads
  Status copy_from(Bytes source, Stream& stream);
  Status copy_to(MutableBytes target, Stream& stream) const;

 private:
  DeviceBuffer(std::byte* data, std::size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  std::byte* data_;
  std::size_t size_bytes_;
};

}  // namespace precis::kernels
