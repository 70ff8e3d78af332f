// The power of two of sixteen lanes. Only for loops that isa.h compiles.
#pragma once

#include "kernels/common/lanes.h"

namespace precis::kernels {

// exp2 with a relative error of 2^-23, and 0 if the result would be subnormal. `x` <= 126.
PRECIS_INLINE Lanes exp2_lanes(Lanes x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer
  const Lanes shifted = x + kRound;
  const Lanes r = x - (shifted - kRound);
  // The polynomial of degree 5 with the least relative error on [-1/2, 1/2]: 2^-23.7.
  Lanes p = r * 1.3276472e-3f + 9.6755410e-3f;
  p = p * r + 5.5507131e-2f;
  p = p * r + 2.4022120e-1f;
  p = p * r + 6.9314694e-1f;
  p = p * r + 1.0000001f;
  const Words bits = (Words)p + ((Words)shifted << 23);
  return where_negative(x + 126.0f, Lanes{}, (Lanes)bits);
}

}  // namespace precis::kernels
