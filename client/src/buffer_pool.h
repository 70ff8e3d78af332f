// Memory that gets arrive in. Freed buffers are kept with their registrations, so that memory is
// registered once and its pages stay mapped from one get to the next.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "client/src/pinned_once.h"
#include "client/src/transport/client_transport.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

class BufferPool {
 public:
  // Limits of the freed buffers that the pool keeps: enough for two prefixes in use and two that
  // are arriving.
  static constexpr std::size_t kKeptBuffersMax = 4;
  static constexpr std::size_t kKeptBytesMax = std::size_t{4} << 30;

  explicit BufferPool(ClientTransport& transport) : transport_(transport) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Returns its memory to the pool when destroyed; the pool must outlive it.
  class Buffer {
   public:
    Buffer(BufferPool& pool, PinnedOnce<std::unique_ptr<Registration>> memory)
        : pool_(pool), memory_(std::move(memory)) {}
    ~Buffer() { pool_.take_back(std::move(memory_)); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    MutableBytes bytes() const { return memory_->bytes(); }
    Registration& registration() const { return *memory_; }
    void pin(PageMover& mover) { memory_.pin(mover); }

   private:
    BufferPool& pool_;
    PinnedOnce<std::unique_ptr<Registration>> memory_;
  };

  // At least `size_bytes`, on a page boundary, contents undefined. kOutOfSpace if the machine has
  // no such memory. Any thread.
  Result<std::unique_ptr<Buffer>> allocate(std::size_t size_bytes);

 private:
  void take_back(PinnedOnce<std::unique_ptr<Registration>> memory);

  ClientTransport& transport_;
  std::mutex mutex_;
  // Guarded by mutex_; least recently used first.
  std::vector<PinnedOnce<std::unique_ptr<Registration>>> kept_;
};

}  // namespace precis
