// Memory registered with one side of the transport, for transfers to and from it.
#pragma once

#include "precis/remote_region.h"
#include "precis/view.h"

namespace precis {

// Memory that the transport knows until this object is destroyed. It does not own the bytes, unless
// the transport allocated them.
class Registration {
 public:
  virtual ~Registration() = default;
  virtual MutableBytes bytes() const = 0;
  virtual MemorySpace space() const { return MemorySpace::kHost; }
};

// A registration of host memory that needs no work.
class PlainRegistration final : public Registration {
 public:
  explicit PlainRegistration(MutableBytes bytes) : bytes_(bytes) {}
  MutableBytes bytes() const override { return bytes_; }

 private:
  const MutableBytes bytes_;
};

}  // namespace precis
