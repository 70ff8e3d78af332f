// Whether rows hold a NaN or an infinity: the magnitude bits of a value that is not finite are
// larger than those of every finite value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/common/element_op.h"
#include "kernels/common/lines.h"
#include "precis/types.h"

namespace precis::kernels {

// Bits: a signed integer of an element's size.
template <typename Bits>
PRECIS_INLINE Bits largest_magnitude(const std::byte* data, std::size_t count) {
  const auto* x = reinterpret_cast<const Bits*>(data);
  Bits largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, static_cast<Bits>(x[i] & std::numeric_limits<Bits>::max()));
  }
  return largest;
}

// Finds the largest magnitude in the lines that stream_rows() copies, as its `onlooker`. Elements:
// Ints, Shorts or Octets of Lines.
template <typename Lines, typename Elements>
class LargestMagnitude {
  using Bits = std::remove_cvref_t<decltype(Elements{}[0])>;

 public:
  PRECIS_INLINE void add(const Line<Lines>& line) {
    for (std::size_t i = 0; i < line.kParts; ++i) {
      const Elements bits = (Elements)line.parts[i] & std::numeric_limits<Bits>::max();
      largest_[i] = bits > largest_[i] ? bits : largest_[i];
    }
  }
  PRECIS_INLINE std::int32_t largest() const {
    return largest_magnitude<Bits>(reinterpret_cast<const std::byte*>(largest_),
                                   kLineBytes / sizeof(Bits));
  }

 private:
  Elements largest_[Line<Lines>::kParts] = {};
};

// The smallest magnitude bits of a value that is not finite.
inline std::int32_t not_finite_bits(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32: return kF32ExponentBits;
    case Dtype::kF16: return kF16ExponentBits;
    case Dtype::kF8E4M3: return kF8Nan;
    case Dtype::kBf16: break;
  }
  return kBf16ExponentBits;
}

PRECIS_INLINE bool any_not_finite(Dtype dtype, const std::byte* data, std::size_t count) {
  const std::int32_t largest = dtype == Dtype::kF32 ? largest_magnitude<std::int32_t>(data, count)
                               : dtype == Dtype::kF8E4M3
                                   ? largest_magnitude<std::int8_t>(data, count)
                                   : largest_magnitude<std::int16_t>(data, count);
  return largest >= not_finite_bits(dtype);
}

}  // namespace precis::kernels
