// The score of Scorer::kRandom: a hash, the same on every backend and machine.
#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

namespace precis::kernels {

// SplitMix64's finaliser, 64 bits: every bit of the result depends on every bit of x.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Uniform in [0, 1) in steps of 2^-24, so exact in f32: the upper 24 bits of
// mixed(mixed(seed << 32 | layer) ^ (head << 32 | position)).
PRECIS_HOST_DEVICE PRECIS_INLINE float random_score(std::uint32_t seed, std::uint32_t layer,
                                                    std::uint32_t head, std::uint32_t position) {
  const std::uint64_t of_layer = mixed(std::uint64_t{seed} << 32 | layer);
  const std::uint64_t x = mixed(of_layer ^ (std::uint64_t{head} << 32 | position));
  return static_cast<float>(x >> 40) * 0x1p-24f;
}

}  // namespace precis::kernels
