// Memory for the layers of puts: a piece acquires memory for its layer. Loop thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/open_put.h"
#include "cachesvc/pipeline/put_parts.h"

namespace precis {

class PutMemory {
 public:
  explicit PutMemory(const PutParts& parts) : parts_(parts) {}
  PutMemory(const PutMemory&) = delete;
  PutMemory& operator=(const PutMemory&) = delete;

  // Acquires the memory that a layer's claimed pieces need: for its rows, its records and its
  // projection. kRejected if the memory does not become free in time.
  Task<Status> take(std::shared_ptr<OpenPut> put, std::uint32_t layer, const Connection& from);

  // Frees the memory of a failed put once its work and requests have ended, even if a client keeps
  // it open.
  void free_failed(OpenPut& put);

  // Counts a compression as in progress.
  void begin_work(OpenPut& put);
  void end_work(OpenPut& put);
  bool idle() const { return under_way_ == 0; }

 private:
  const PutParts& parts_;
  std::size_t under_way_ = 0;  // compressions of all puts
};

}  // namespace precis
