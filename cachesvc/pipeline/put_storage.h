// Stores a put whose layers are all compressed: places its seats, makes its row, commits it, and
// gives its records to the hot tier. Loop thread only.
#pragma once

#include <vector>

#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/put_compression.h"

namespace precis {

class PutStorage {
 public:
  // Both must outlive this object.
  PutStorage(const PutParts& parts, PutCompression& compression)
      : parts_(parts), compression_(compression) {}

  // kInvalidArgument if layers are missing; then the put may go on.
  Task<Status> store(OpenPut& put, Durability durability);
  // Makes a put that is stored as durable as asked.
  Task<Status> harden(const OpenPut& put, Durability durability);

 private:
  Task<Status> place(OpenPut& put);
  std::vector<Catalog::Layer> make_row(OpenPut& put);
  Status keep_hot(OpenPut& put);

  const PutParts& parts_;
  PutCompression& compression_;
};

}  // namespace precis
