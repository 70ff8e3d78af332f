// Memory of the layers of puts: a piece takes memory for its layer, and if a request waits for
// memory, the records of puts are moved together so that free memory is contiguous. Loop thread
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
  // Both outlive it.
  PutMemory(const PutParts& parts, const OpenPuts& puts);
  ~PutMemory();
  PutMemory(const PutMemory&) = delete;
  PutMemory& operator=(const PutMemory&) = delete;

  // Takes the memory that a layer's claimed pieces need: for its rows, its records, and the
  // projection that weighs it. kRejected if there is none in time.
  Task<Status> take(std::shared_ptr<OpenPut> put, std::uint32_t layer, const Connection& from);

  // Moves the records of `put` together, and lets waiters try again.
  Task<void> compact(std::shared_ptr<OpenPut> put);
  // The records of `put` may move again, or be evicted.
  void unpinned(const std::weak_ptr<OpenPut>& put);
  // Frees the memory of a put that has failed, whoever still refers to it.
  void free_failed(OpenPut& put);

  // Counts a compression or a move of records as under way.
  void begin_work(OpenPut& put);
  void end_work(OpenPut& put);
  bool idle() const { return under_way_ == 0; }

 private:
  Task<void> compact_all();

  const PutParts& parts_;
  const OpenPuts& puts_;
  std::size_t under_way_ = 0;  // compressions and moves of all puts
  std::size_t wanted_ = 0;     // how often compact_all() was asked for while it runs
};

}  // namespace precis
