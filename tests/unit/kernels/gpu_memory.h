// Arrays on the device, for tests that call launchers directly.
#pragma once

#include <span>
#include <vector>

#include "kernels/common/device.h"

namespace precis::kernels::test {

// How many rounds a test of `count` random cases runs: fewer under AddressSanitizer, which makes
// every exchange between emulated threads slow.
constexpr int rounds(int count) {
#if defined(__SANITIZE_ADDRESS__)
  return (count + 9) / 10;
#else
  return count;
#endif
}

inline void must_succeed(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

// A stream, and copies over it. Every copy is waited for.
class Gpu {
 public:
  Gpu() : stream_((must_succeed(use_device(0)), Stream::create().value())) {}
  Stream& stream() { return stream_; }

  DeviceBuffer empty(std::size_t bytes) { return DeviceBuffer::allocate(bytes, stream_).value(); }
  template <typename T>
  DeviceBuffer upload(const std::vector<T>& values) {
    DeviceBuffer buffer = empty(values.size() * sizeof(T));
    must_succeed(buffer.copy_from(std::as_bytes(std::span(values)), stream_));
    must_succeed(stream_.wait());
    return buffer;
  }
  DeviceBuffer upload(const HeadsView& heads) {
    DeviceBuffer buffer = empty(heads.size_bytes());
    must_succeed(buffer.copy_from(heads, stream_));
    must_succeed(stream_.wait());
    return buffer;
  }
  template <typename T>
  std::vector<T> download(const DeviceBuffer& buffer) {
    std::vector<T> values(buffer.size_bytes() / sizeof(T));
    must_succeed(buffer.copy_to(std::as_writable_bytes(std::span(values)), stream_));
    must_succeed(stream_.wait());
    return values;
  }

 private:
  Stream stream_;
};

template <typename T>
T* data_of(const DeviceBuffer& buffer) {
  return reinterpret_cast<T*>(buffer.data());
}

}  // namespace precis::kernels::test
