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

// Of host memory that needs no more than to be named.
class PlainRegistration final : public Registration {
 public:
  explicit PlainRegistration(MutableBytes bytes) : bytes_(bytes) {}
  MutableBytes bytes() const override { return bytes_; }

 private:
  const MutableBytes bytes_;
};

}  // namespace precis
