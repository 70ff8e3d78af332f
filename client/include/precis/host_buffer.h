// Memory that a service reads without a copy through a socket (Client::allocate()).
#pragma once

#include "precis/view.h"

namespace precis {

// The host memory from which pushes are fastest: a service on the same host reads it in place, and
// for any service it is registered once instead of at every push. The HostBuffer owns the memory
// and keeps its client's connection open.
class HostBuffer {
 public:
  virtual ~HostBuffer() = default;
  virtual MutableBytes bytes() const = 0;  // starts on a page boundary; zeros at first
};

}  // namespace precis
