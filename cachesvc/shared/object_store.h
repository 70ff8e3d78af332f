// Named objects that many machines reach, as S3 has them. Every call finds all that earlier calls
// of any machine have written.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// Thread-safe. Calls block. kUnavailable if no answer comes in time: then a change may have been
// made, or may be made later. kOutOfSpace if the storage is full. A name has letters, digits, dots,
// hyphens, underscores and slashes only.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // Writes an object that does not exist yet. Returns false if it exists: of several machines that
  // create an object at the same time, one succeeds.
  virtual Result<bool> create(const std::string& name, Bytes value) = 0;
  // Writes or replaces an object.
  virtual Status put(const std::string& name, Bytes value) = 0;
  // kNotFound if absent, kCorruption if longer than `bytes_max`.
  virtual Result<std::vector<std::byte>> get(const std::string& name, std::size_t bytes_max) = 0;
  // kNotFound if absent, kCorruption if its size is not that of `into`.
  virtual Status get_into(const std::string& name, MutableBytes into) = 0;
  // OK if it is absent.
  virtual Status remove(const std::string& name) = 0;
  struct Page {
    std::vector<std::string> names;
    bool more = false;  // list again, after the last of them
  };
  // The first of the names that begin with `prefix` and come after the name `after`, in the order
  // of their bytes. A page is no snapshot: objects that are created or removed meanwhile may be in
  // it or not. But names are examined in their order.
  virtual Result<Page> list(const std::string& prefix, const std::string& after) = 0;
};

}  // namespace precis
