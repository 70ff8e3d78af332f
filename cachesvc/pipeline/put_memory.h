// Memory for the layers of puts. A piece acquires memory for its layer. If a request waits for
// memory, the records of puts are compacted, so that the free memory is contiguous. Loop thread
// only.
#pragma once

#include <cstdint>
#include <memory>

#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/open_puts.h"
#include "cachesvc/pipeline/put_parts.h"

namespace precis {

class PutMemory {
 public:
  // Both must outlive this object.
  PutMemory(const PutParts& parts, const OpenPuts& puts);
  ~PutMemory();
  PutMemory(const PutMemory&) = delete;
  PutMemory& operator=(const PutMemory&) = delete;

  // Acquires the memory that a layer's claimed pieces need: for its rows, its records and its
  // projection. kRejected if the memory does not become free in time.
  Task<Status> take(std::shared_ptr<OpenPut> put, std::uint32_t layer, const Connection& from);

  // Compacts the records of `put`, then lets waiting requests try again.
  Task<void> compact(std::shared_ptr<OpenPut> put);
  // Call this when the records of `put` may move again, or be evicted.
  void unpinned(const std::weak_ptr<OpenPut>& put);
  // Frees the memory of a failed put once its work and requests have ended, even if a client keeps
  // it open.
  void free_failed(OpenPut& put);

  // Counts a compression or a move of records as in progress.
  void begin_work(OpenPut& put);
  void end_work(OpenPut& put);
  bool idle() const { return under_way_ == 0; }

 private:
  Task<void> compact_all();

  const PutParts& parts_;
  const OpenPuts& puts_;
  std::size_t under_way_ = 0;  // compressions and moves of all puts
  std::size_t wanted_ = 0;     // calls of compact_all() since its run began
};

}  // namespace precis
