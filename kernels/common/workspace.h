// Cuts a launcher's workspace into arrays, the same way when its size is asked for and when it is
// used.
#pragma once

#include <cstddef>
#include <cstdint>

namespace precis::kernels {

class Workspace {
 public:
  // `base`: at a multiple of 16 bytes, or null to ask for the size alone.
  explicit Workspace(void* base) : base_(reinterpret_cast<std::uintptr_t>(base)) {}

  // The next `count` elements, at a multiple of 16 bytes; no address to be used where `base` is
  // null.
  template <typename T>
  T* take(std::size_t count) {
    const std::uintptr_t at = base_ + size_bytes_;
    size_bytes_ += (count * sizeof(T) + 15) / 16 * 16;
    return reinterpret_cast<T*>(at);
  }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  std::uintptr_t base_;
  std::size_t size_bytes_ = 0;
};

}  // namespace precis::kernels
