// Memory that gets arrive in. Freed buffers are kept with their registrations, so that memory is
// registered once and its pages stay warm from one get to the next.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "cachesvc/transport/transport.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// Memory of a get, mapped by BufferPool.
struct UnmapMemory {
  std::size_t size_bytes = 0;
  void operator()(std::byte* memory) const;
};
struct PooledBlock {
  std::unique_ptr<std::byte, UnmapMemory> memory;
  std::unique_ptr<Registration> registration;  // last, so that it goes first
  std::size_t size_bytes() const { return memory.get_deleter().size_bytes; }
};

class BufferPool {
 public:
  // What the pool keeps of freed buffers: two prefixes in turn with the next two arriving.
  static constexpr std::size_t kKeptBuffersMax = 4;
  static constexpr std::size_t kKeptBytesMax = std::size_t{4} << 30;

  explicit BufferPool(Transport& transport) : transport_(transport) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Goes back to the pool, which must be there still, when destroyed.
  class Buffer {
   public:
    Buffer(BufferPool& pool, PooledBlock block) : pool_(pool), block_(std::move(block)) {}
    ~Buffer() { pool_.take_back(std::move(block_)); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    MutableBytes bytes() const { return {block_.memory.get(), block_.size_bytes()}; }
    Registration& registration() const { return *block_.registration; }

   private:
    BufferPool& pool_;
    PooledBlock block_;
  };

  // At least `size_bytes`, on a page boundary; what stands in it is undefined. kOutOfSpace if the
  // machine has no such memory. Any thread.
  Result<std::unique_ptr<Buffer>> allocate(std::size_t size_bytes);

 private:
  Result<PooledBlock> map(std::size_t size_bytes) const;
  void take_back(PooledBlock block);

  Transport& transport_;
  std::mutex mutex_;
  std::vector<PooledBlock> kept_;  // guarded by mutex_; the longest unused first
};

}  // namespace precis
