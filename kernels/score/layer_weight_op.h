// Arithmetic of layers' weights, shared by CPU and CUDA (policies/scores.md, "Weights of layers").
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "precis/recipe.h"

namespace precis::kernels {

// Clamps x to a valid f32 weight: not negative and finite; NaN becomes 0.
PRECIS_HOST_DEVICE PRECIS_INLINE float as_weight(double x) {
  constexpr float kLargest = 0x1.fffffep127f;
  if (!(x > 0)) return 0;
  return x < static_cast<double>(kLargest) ? static_cast<float>(x) : kLargest;
}

// Whether a score can be a share: positive and finite.
PRECIS_HOST_DEVICE PRECIS_INLINE bool is_share(float score) {
  return score > 0 && score < __builtin_huge_valf();
}

// kEntropy, from the sums of s and of s ln s over the shares of `count` scores in all: with
// p = s / total, -sum p ln p = ln total - (sum s ln s) / total.
PRECIS_HOST_DEVICE PRECIS_INLINE float weight_of_shares(double total, double sum,
                                                        std::uint64_t count) {
  if (total == 0) return 0;
  return as_weight((std::log(total) - sum / total) / static_cast<double>(count));
}

// kPreference: H^(1/tau1) * V^(1/tau2).
struct PreferencePowers {
  double entropy = 1, variance = 1;
  static PreferencePowers of(const Recipe& recipe) {
    return {1e6 / recipe.tau1_ppm, 1e6 / recipe.tau2_ppm};
  }
  PRECIS_HOST_DEVICE PRECIS_INLINE float weight(double h, double v) const {
    return as_weight(std::pow(h > 0 ? h : 0.0, entropy) * std::pow(v, variance));
  }
};

}  // namespace precis::kernels
