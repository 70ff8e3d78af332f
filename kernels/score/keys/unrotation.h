// Undoes RoPE: recovers keys as they were before RoPE rotated them by their positions.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <span>
#include <vector>

#include "kernels/common/lanes.h"

namespace precis::kernels {

// As Transformers' rotate_half: pair c is elements c and c + pairs of a key, and at position p RoPE
// has rotated the pair by p * frequencies[c] radians. Channels after the pairs are not rotated. A
// "turn" is such a rotation.
//
// A token's turn is its block's turn followed by its step's turn within the block, so sums and
// products over the tokens of a block need the block's turn only once. A turn is cos [width], then
// sin [width], each in the order of Channels of the keys' dtype.
class Unrotation {
 public:
  static constexpr std::size_t kBlockTokens = 64;

  // For tokens [0, num_tokens). Each turn is the previous turn times a fixed factor, in double; at
  // a million tokens the error is still far below that of f32. Takes at most dim / 16 bytes per
  // token.
  Unrotation(std::span<const double> frequencies, std::size_t num_tokens, Dtype dtype)
      : pairs_(frequencies.size()), width_(whole_channels(pairs_)) {
    if (pairs_ == 0) return;
    const std::size_t blocks = (num_tokens + kBlockTokens - 1) / kBlockTokens;
    steps_.resize(2 * width_ * kBlockTokens);
    blocks_.resize(2 * width_ * blocks);
    for (std::size_t c = 0; c < pairs_; ++c) {
      fill(frequencies[c], lane_of(dtype, c), steps_);
      fill(frequencies[c] * kBlockTokens, lane_of(dtype, c), blocks_);
    }
  }
  std::size_t pairs() const { return pairs_; }
  std::size_t width() const { return width_; }  // pairs rounded up to whole Channels
  // The turn of token t within its block, and the turn of the block of token t.
  const float* step(std::size_t t) const { return steps_.data() + t % kBlockTokens * 2 * width_; }
  const float* block(std::size_t t) const { return blocks_.data() + t / kBlockTokens * 2 * width_; }

 private:
  // Fills in the turns by 0, 1, 2.. times `angle` of the pair at `lane`.
  void fill(double angle, std::size_t lane, std::vector<float>& turns) const {
    const std::complex<double> once = std::polar(1.0, angle);
    double cosine = 1, sine = 0;
    for (std::size_t i = lane; i < turns.size(); i += 2 * width_) {
      turns[i] = static_cast<float>(cosine);
      turns[i + width_] = static_cast<float>(sine);
      const double next = cosine * once.real() - sine * once.imag();
      sine = sine * once.real() + cosine * once.imag();
      cosine = next;
    }
  }

  std::size_t pairs_, width_;
  std::vector<float> steps_, blocks_;
};

// Rotate pairs of first and second elements by an angle, forward or back.
PRECIS_INLINE void turn_lanes(Lanes& first, Lanes& second, Lanes cosine, Lanes sine) {
  const Lanes x = first * cosine - second * sine;
  second = second * cosine + first * sine;
  first = x;
}
PRECIS_INLINE void turn_back_lanes(Lanes& first, Lanes& second, Lanes cosine, Lanes sine) {
  const Lanes x = first * cosine + second * sine;
  second = second * cosine - first * sine;
  first = x;
}
PRECIS_INLINE void turn_back(Channels& first, Channels& second, const float* turn,
                             std::size_t width) {
  turn_back_lanes(first.a, second.a, load_lanes(turn), load_lanes(turn + width));
  turn_back_lanes(first.b, second.b, load_lanes(turn + kLanes), load_lanes(turn + width + kLanes));
}

}  // namespace precis::kernels
