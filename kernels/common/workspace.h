// Divides a launcher's workspace into arrays, the same way when its size is computed and when it is
// used.
#pragma once

#include <cstddef>
#include <cstdint>

namespace precis::kernels {

class Workspace {
 public:
  // `base`: aligned to 16 bytes, or null to compute the size alone.
  explicit Workspace(void* base) : base_(reinterpret_cast<std::uintptr_t>(base)) {}

  // The next `count` elements, aligned to 16 bytes. If `base` is null, the address must not be
  // used.
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
