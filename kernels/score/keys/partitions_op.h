// Arithmetic of the scores within partitions (policies/scores.md, "LagKV and LocalKV"; D9).
#pragma once

#include "kernels/common/host_device.h"

namespace precis::kernels {

// The factor that normalises a channel: 1 / its range. 1 if the channel is constant over the
// partition; the largest factor if the range has no finite inverse.
PRECIS_HOST_DEVICE PRECIS_INLINE float lag_stretch(float low, float high) {
  constexpr float kStretchMax = 0x1p126f, kRangeMin = 1.0f / kStretchMax;
  const float range = high - low;
  // No branch, so that loops over channels vectorise.
  const float inverse = 1.0f / (range > kRangeMin ? range : 1.0f);
  return range == 0.0f ? 1.0f : range > kRangeMin ? inverse : kStretchMax;
}

}  // namespace precis::kernels
