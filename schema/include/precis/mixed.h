// A hash of numbers that is the same on every machine and in every version.
#pragma once

#include <cstdint>

namespace precis::cluster {

// SplitMix64's finaliser: every bit of the result depends on every bit of x.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace precis::cluster
