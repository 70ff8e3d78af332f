// Arithmetic of the scorers that read K, and V's norms, alone (policies.md 2.6, 2.7; kvdiff is
// ours: ARCHITECTURE.md).
#pragma once

#include "kernels/common/host_device.h"

namespace precis::kernels {

// Norms below this are taken as this: a zero key has no direction and scores 0.
inline constexpr float kNormMin = 1e-12f;

PRECIS_HOST_DEVICE PRECIS_INLINE float guarded_norm(float norm) {
  return norm > kNormMin ? norm : kNormMin;
}

// -cos(key, anchor); inverse_norm: 1 / guarded_norm() of the key's. Each length is divided out by
// itself: their product may overflow or vanish.
PRECIS_HOST_DEVICE PRECIS_INLINE float keydiff_score(float product, float inverse_norm,
                                                     float anchor_norm) {
  return -(product * inverse_norm) / guarded_norm(anchor_norm);
}

// How unlike the others a key is, 0 to 2, times its value's norm relative to the head's mean;
// values that are all zero count alike.
PRECIS_HOST_DEVICE PRECIS_INLINE float kvdiff_score(float keydiff, float value_norm,
                                                    float mean_value_norm) {
  return mean_value_norm > kNormMin ? (1.0f + keydiff) * (value_norm / mean_value_norm)
                                    : 1.0f + keydiff;
}

}  // namespace precis::kernels
