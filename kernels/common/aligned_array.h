// Scratch memory at the border of a cache line, so that no vector of 16 lanes lies across two of
// them: such a store costs several others, and cannot be read again before it has left the core.
#pragma once

#include <cstddef>
#include <memory>

namespace precis::kernels {

template <typename T>
class AlignedArray {
 public:
  static constexpr std::size_t kLineBytes = 64;
  // Not initialised.
  explicit AlignedArray(std::size_t size)
      : lines_(std::make_unique_for_overwrite<Line[]>(size / kPerLine + 1)) {}
  AlignedArray(std::size_t size, T value) : AlignedArray(size) {
    for (std::size_t i = 0; i < size; ++i) data()[i] = value;
  }
  T* data() { return lines_[0].x; }
  const T* data() const { return lines_[0].x; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }

 private:
  static constexpr std::size_t kPerLine = kLineBytes / sizeof(T);
  struct alignas(kLineBytes) Line {
    T x[kPerLine];
  };
  std::unique_ptr<Line[]> lines_;
};

}  // namespace precis::kernels
