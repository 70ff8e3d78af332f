// XXH3-128 of what passes by in whole stripes, so that bytes need not be read again to be hashed
// (xxh3_long_op.h, with a stripe's words along the lanes). Only for loops that isa.h compiles.
#pragma once

#include "kernels/common/lines.h"
#include "kernels/encode/xxh3_long_op.h"

namespace precis::kernels::xxh3 {

static_assert(kStripeBytes == kLineBytes);

// The secret as bytes in memory, for pieces that begin anywhere.
struct Secret {
  static constexpr std::size_t kWords = 24;
  std::uint64_t words[kWords];
  Secret() {
    for (std::size_t i = 0; i < kWords; ++i) words[i] = secret_word(i);
  }
  PRECIS_INLINE Line piece(std::size_t byte) const {
    return load_line(reinterpret_cast<const std::byte*>(words) + byte);
  }
};
inline const Secret& secret_in_memory() {
  static const Secret secret;
  return secret;
}

template <typename Lines>
class StripeHash {
 public:
  // Of an input of so many stripes, more than kShortBytesMax bytes.
  PRECIS_INLINE explicit StripeHash(std::size_t stripes)
      : secret_(secret_in_memory()),
        size_(stripes * kStripeBytes),
        left_(stripes),
        scramble_(secret_.piece(16 * sizeof(std::uint64_t))) {
    for (std::size_t i = 0; i < kSums; ++i) sums_[i] = first_sum(i);
  }

  PRECIS_INLINE void add(const Line& stripe) {
    --left_;
    const Line keyed = stripe ^ secret_.piece(left_ == 0 ? kLastStripeKey : stripe_key(of_block_));
    sums_ +=
        __builtin_shufflevector(stripe, stripe, 1, 0, 3, 2, 5, 4, 7, 6) + Lines::product(keyed);
    if (++of_block_ < kBlockBytes / kStripeBytes || left_ == 0) return;
    sums_ = (sums_ ^ sums_ >> 47 ^ scramble_) * kPrime32_1;
    of_block_ = 0;
  }

  // Once all have been added.
  PRECIS_INLINE Hash128 finished() const {
    std::uint64_t sums[kSums];
    std::memcpy(sums, &sums_, sizeof sums);
    return xxh3::finished(sums, size_);
  }

 private:
  const Secret& secret_;
  std::size_t size_, left_, of_block_ = 0;
  Line scramble_, sums_ = {};
};

}  // namespace precis::kernels::xxh3
