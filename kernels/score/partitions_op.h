// Arithmetic of the scores within partitions, lagkv and localkv (policies.md 2.15, D9).
#pragma once

#include "kernels/common/host_device.h"

namespace precis::kernels {

// What a channel is multiplied with: 1 / its range. A channel that is constant over a partition is
// not stretched; one whose range has no finite inverse is stretched as far as an f32 goes.
PRECIS_HOST_DEVICE PRECIS_INLINE float lag_stretch(float low, float high) {
  constexpr float kStretchMax = 0x1p126f, kRangeMin = 1.0f / kStretchMax;
  const float range = high - low;
  // Without a branch, for loops over channels become vectors.
  const float inverse = 1.0f / (range > kRangeMin ? range : 1.0f);
  return range == 0.0f ? 1.0f : range > kRangeMin ? inverse : kStretchMax;
}

}  // namespace precis::kernels
