// XXH3-128 of lines as they pass through registers, so that bytes need not be read again to be
// hashed (xxh3_long_op.h, with a stripe's words along the lanes). Only for loops that isa.h
// compiles.
#pragma once

#include "kernels/common/lines.h"
#include "kernels/encode/xxh3_long_op.h"

namespace precis::kernels::xxh3 {

static_assert(kStripeBytes == kLineBytes);

// The secret as bytes in memory, for pieces that begin at any byte.
struct Secret {
  static constexpr std::size_t kWords = 24;
  std::uint64_t words[kWords];
  Secret() {
    for (std::size_t i = 0; i < kWords; ++i) words[i] = secret_word(i);
  }
  template <typename Lines>
  PRECIS_INLINE Line<Lines> piece(std::size_t byte) const {
    return load_line<Lines>(reinterpret_cast<const std::byte*>(words) + byte);
  }
};
inline const Secret& secret_in_memory() {
  static const Secret secret;
  return secret;
}

template <typename Lines>
class StripeHash {
 public:
  // For an input of `stripes` stripes, more than kShortBytesMax bytes.
  PRECIS_INLINE explicit StripeHash(std::size_t stripes)
      : secret_(secret_in_memory()),
        size_(stripes * kStripeBytes),
        left_(stripes),
        scramble_(secret_.piece<Lines>(16 * sizeof(std::uint64_t))) {
    std::uint64_t first[kSums];
    for (std::size_t i = 0; i < kSums; ++i) first[i] = first_sum(i);
    sums_ = load_line<Lines>(first);
  }

  PRECIS_INLINE void add(const Line<Lines>& stripe) {
    --left_;
    const auto key = secret_.piece<Lines>(left_ == 0 ? kLastStripeKey : stripe_key(of_block_));
    for (std::size_t i = 0; i < stripe.kParts; ++i) {
      sums_.parts[i] +=
          Lines::swapped(stripe.parts[i]) + Lines::product(stripe.parts[i] ^ key.parts[i]);
    }
    if (++of_block_ < kBlockBytes / kStripeBytes || left_ == 0) return;
    for (std::size_t i = 0; i < stripe.kParts; ++i) {
      auto& sums = sums_.parts[i];
      sums = (sums ^ sums >> 47 ^ scramble_.parts[i]) * kPrime32_1;
    }
    of_block_ = 0;
  }

  // The hash, after all stripes have been added.
  PRECIS_INLINE Hash128 finished() const {
    std::uint64_t sums[kSums];
    store_line(sums, sums_);
    return xxh3::finished(sums, size_);
  }

 private:
  const Secret& secret_;
  std::size_t size_, left_, of_block_ = 0;
  Line<Lines> scramble_, sums_;
};

}  // namespace precis::kernels::xxh3
