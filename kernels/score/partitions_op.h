// Arithmetic of the scores within partitions, lagkv and localkv (policies.md 2.15, D9).
#pragma once

#include "kernels/common/host_device.h"

namespace precis::kernels {

// What a channel is divided by; a channel that is constant over a partition is not stretched.
PRECIS_HOST_DEVICE PRECIS_INLINE float lag_range(float low, float high) {
  const float range = high - low;
  return range == 0.0f ? 1.0f : range;
}

}  // namespace precis::kernels
