// Memory that a half of the transport may move bytes to and from.
#pragma once

#include "precis/remote_region.h"
#include "precis/view.h"

namespace precis {

// Memory known to the transport, until destroyed. Does not own the bytes, unless the transport made
// them.
class Registration {
 public:
  virtual ~Registration() = default;
  virtual MutableBytes bytes() const = 0;
  virtual MemorySpace space() const { return MemorySpace::kHost; }
};

}  // namespace precis
