// Memory registered with one side of the transport, for transfers to and from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

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

// `registered` if it holds all of these ranges; else one of all host memory, for transfers without
// a device.
inline const Registration& registration_of(std::span<const Bytes> ranges,
                                           const Registration& registered) {
  static const PlainRegistration all({static_cast<std::byte*>(nullptr), SIZE_MAX});
  const MutableBytes held = registered.bytes();
  const bool holds = std::ranges::all_of(ranges, [&](Bytes range) {
    return range.empty() ||
           (range.data() >= held.data() && range.data() < held.data() + held.size());
  });
  return holds ? registered : all;
}

}  // namespace precis
