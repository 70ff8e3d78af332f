// RoPE undone: a key as it was before its position turned it.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/common/host_device.h"

namespace precis::kernels {

// Transformers' rotate_half: pair c is elements c and c + pairs of a key, and position p has turned
// it by p * frequencies[c] radians. What stands behind the pairs carries no rotation.
class Unrotation {
 public:
  // For tokens of blocks of `block_tokens`: a token's turn is its block's times its step's.
  Unrotation(std::span<const double> frequencies, std::size_t block_tokens)
      : frequencies_(frequencies), steps_(2 * block_tokens * frequencies.size()) {
    for (std::size_t t = 0; t < block_tokens; ++t) fill(t, steps_.data() + 2 * t * pairs());
  }
  std::size_t pairs() const { return frequencies_.size(); }
  const float* step(std::size_t t) const { return steps_.data() + 2 * t * pairs(); }
  // cos [pairs], then sin [pairs], of token `first`.
  std::vector<float> turn_of(std::size_t first) const {
    std::vector<float> turn(2 * pairs());
    fill(first, turn.data());
    return turn;
  }

 private:
  void fill(std::size_t position, float* turn) const {
    for (std::size_t c = 0; c < pairs(); ++c) {
      const double angle = static_cast<double>(position) * frequencies_[c];
      turn[c] = static_cast<float>(std::cos(angle));
      turn[pairs() + c] = static_cast<float>(std::sin(angle));
    }
  }

  std::span<const double> frequencies_;
  std::vector<float> steps_;
};

// out[dim]: `key` turned back by `block` and `step`, each cos [pairs] and sin [pairs].
PRECIS_INLINE void turn_back(const float* key, std::size_t dim, std::size_t pairs,
                             const float* block, const float* step, float* out) {
  for (std::size_t c = 0; c < pairs; ++c) {
    const float cosine = block[c] * step[c] - block[pairs + c] * step[pairs + c];
    const float sine = block[pairs + c] * step[c] + block[c] * step[pairs + c];
    out[c] = key[c] * cosine + key[pairs + c] * sine;
    out[pairs + c] = key[pairs + c] * cosine - key[c] * sine;
  }
  for (std::size_t c = 2 * pairs; c < dim; ++c) out[c] = key[c];
}

}  // namespace precis::kernels
