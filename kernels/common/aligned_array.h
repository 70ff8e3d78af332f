// Scratch memory aligned to a cache line, so that no vector of 16 lanes crosses two lines. A store
// across two lines costs as much as several stores, and a load of it must wait until it has reached
// the cache.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace precis::kernels {

template <typename T>
class AlignedArray {
 public:
  static_assert(std::is_trivial_v<T>);
  static constexpr std::size_t kLineBytes = 64;
  // Not initialised. The allocation is whole lines.
  explicit AlignedArray(std::size_t size)
      : memory_(static_cast<T*>(
            ::operator new((size * sizeof(T) / kLineBytes + 1) * kLineBytes, kAlign))) {}
  AlignedArray(std::size_t size, T value) : AlignedArray(size) {
    for (std::size_t i = 0; i < size; ++i) memory_.get()[i] = value;
  }
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }

 private:
  static constexpr std::align_val_t kAlign{kLineBytes};
  struct Free {
    void operator()(T* memory) const { ::operator delete(memory, kAlign); }
  };
  std::unique_ptr<T, Free> memory_;
};

}  // namespace precis::kernels
