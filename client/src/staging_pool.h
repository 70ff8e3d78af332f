// Memory that rows are copied into from pages before they are pushed. It comes from HostMemory, so
// a service on the same host reads it in place. Freed buffers are kept, so that each is registered
// once.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "client/src/host_memory.h"
#include "client/src/pinned_once.h"
#include "precis/client.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// Thread-safe. Keeps at most limits::kStagingBuffersKeptMax buffers and
// limits::kStagingBytesKeptMax; the buffers in use are bounded by the pieces that puts may have in
// flight.
class StagingPool : public std::enable_shared_from_this<StagingPool> {
 public:
  explicit StagingPool(std::shared_ptr<HostMemory> memory) : memory_(std::move(memory)) {}

  // Returns its memory to the pool, which it keeps alive, when destroyed.
  class Buffer {
   public:
    Buffer(std::shared_ptr<StagingPool> pool, PinnedOnce<std::shared_ptr<HostBuffer>> memory)
        : pool_(std::move(pool)), memory_(std::move(memory)) {}
    ~Buffer() { pool_->take_back(std::move(memory_)); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    MutableBytes bytes() const { return memory_->bytes(); }
    void pin(PageMover& mover) { memory_.pin(mover); }

   private:
    const std::shared_ptr<StagingPool> pool_;
    PinnedOnce<std::shared_ptr<HostBuffer>> memory_;
  };

  // At least `size_bytes`, on a page boundary, contents undefined. kOutOfSpace if the machine has
  // no such memory.
  Result<std::unique_ptr<Buffer>> allocate(std::size_t size_bytes);

 private:
  void take_back(PinnedOnce<std::shared_ptr<HostBuffer>> memory);

  const std::shared_ptr<HostMemory> memory_;  // shared with the client and its channels
  std::mutex mutex_;
  // Guarded by mutex_; least recently used first.
  std::vector<PinnedOnce<std::shared_ptr<HostBuffer>>> kept_;
};

}  // namespace precis
