// Arithmetic of the scorers that read only K, and V's norms: knorm, keydiff and kvdiff
// (policies/scores.md, "KeyDiff" and "kvdiff").
#pragma once

#include "kernels/common/host_device.h"

namespace precis::kernels {

// Smaller norms are raised to this value: a zero key has no direction and scores 0.
inline constexpr float kNormMin = 1e-12f;

PRECIS_HOST_DEVICE PRECIS_INLINE float guarded_norm(float norm) {
  return norm > kNormMin ? norm : kNormMin;
}

// -cos(key, anchor); inverse_norm: 1 / guarded_norm() of the key's norm. Divides by each length
// separately, because the product of the lengths may overflow or vanish.
PRECIS_HOST_DEVICE PRECIS_INLINE float keydiff_score(float product, float inverse_norm,
                                                     float anchor_norm) {
  return -(product * inverse_norm) / guarded_norm(anchor_norm);
}

// How much a key differs from the others, 0 to 2, times its value's norm relative to the head's
// mean. If all values are zero, the norms have no effect.
PRECIS_HOST_DEVICE PRECIS_INLINE float kvdiff_score(float keydiff, float value_norm,
                                                    float mean_value_norm) {
  return mean_value_norm > kNormMin ? (1.0f + keydiff) * (value_norm / mean_value_norm)
                                    : 1.0f + keydiff;
}

}  // namespace precis::kernels
