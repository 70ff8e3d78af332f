// Memory like the service's arena (cachesvc/base/arena.h): the arrays of the stages begin on a huge
// page's boundary, in huge pages if the machine has them. Rows across cache lines, or in a thousand
// small pages, would make the stages measure slower than they are in the service.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

namespace precis::bench {

// `size` zeros. The constructor touches all of the memory.
template <typename T>
class ArenaArray {
 public:
  explicit ArenaArray(std::size_t size)
      : mapped_bytes_(size * sizeof(T) + kHugePageBytes),
        mapped_(::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0)),
        size_(size) {
    if (mapped_ == MAP_FAILED) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(mapped_);
    const std::size_t skew = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
    data_ = reinterpret_cast<T*>(static_cast<std::byte*>(mapped_) + skew);
    ::madvise(data_, size * sizeof(T), MADV_HUGEPAGE);  // Best effort.
    for (T& x : all()) x = T{};
  }
  ~ArenaArray() { ::munmap(mapped_, mapped_bytes_); }
  ArenaArray(const ArenaArray&) = delete;
  ArenaArray& operator=(const ArenaArray&) = delete;

  std::span<T> all() { return {data_, size_}; }
  std::span<const T> all() const { return {data_, size_}; }

 private:
  static constexpr std::size_t kHugePageBytes = 2u << 20;
  std::size_t mapped_bytes_;
  void* mapped_;
  T* data_ = nullptr;
  std::size_t size_;
};

}  // namespace precis::bench
