// XXH3-128 of inputs of any length, for host and device. Inputs longer than kShortBytesMax are
// split into stripes. Each stripe except the last adds to eight sums under its own piece of the
// secret, in any order within a block. A block that is followed by another ends by scrambling the
// sums. So the additions of a block can be computed before those of earlier blocks.
#pragma once

#include "kernels/encode/xxh3_op.h"

namespace precis::kernels::xxh3 {

inline constexpr std::size_t kStripeBytes = 64;
inline constexpr std::size_t kBlockBytes = 1024;  // sums are scrambled after each block
inline constexpr std::size_t kSums = 8;

PRECIS_HOST_DEVICE inline std::uint64_t first_sum(std::size_t i) {
  static constexpr std::uint64_t kFirst[kSums] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                                                  kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  return kFirst[i];
}
// Adds words 2i and 2i + 1 of a stripe to sums 2i and 2i + 1; `even_key` and `odd_key` are the
// corresponding two words of the stripe's piece of the secret.
PRECIS_HOST_DEVICE PRECIS_INLINE void add_pair(std::uint64_t even, std::uint64_t odd,
                                               std::uint64_t even_key, std::uint64_t odd_key,
                                               std::uint64_t& even_sum, std::uint64_t& odd_sum) {
  const std::uint64_t a = even ^ even_key, b = odd ^ odd_key;
  even_sum += odd + (a & 0xffffffffu) * (a >> 32);
  odd_sum += even + (b & 0xffffffffu) * (b >> 32);
}
// The first byte of the secret's piece for stripe i of a block; kLastStripeKey is that of the
// input's last 64 bytes.
PRECIS_HOST_DEVICE PRECIS_INLINE std::size_t stripe_key(std::size_t i) { return i * 8; }
inline constexpr std::size_t kLastStripeKey = 192 - 71;

PRECIS_HOST_DEVICE PRECIS_INLINE std::uint64_t scrambled(std::uint64_t sum, std::size_t i) {
  return (sum ^ sum >> 47 ^ secret_word(16 + i)) * kPrime32_1;
}

PRECIS_HOST_DEVICE inline std::uint64_t merged(const std::uint64_t* sums, std::size_t key,
                                               std::uint64_t start) {
  for (std::size_t i = 0; i < 4; ++i) {
    start += folded_product(sums[2 * i] ^ secret(key + i * 16),
                            sums[2 * i + 1] ^ secret(key + i * 16 + 8));
  }
  return avalanche(start);
}
// The hash of a long input, after every stripe has been added.
PRECIS_HOST_DEVICE inline Hash128 finished(const std::uint64_t* sums, std::size_t size) {
  return {merged(sums, 11, size * kPrime64_1), merged(sums, 192 - 75, ~(size * kPrime64_2))};
}

// Adds the stripe at `at`, whose piece of the secret begins at byte `key`.
template <typename Input>
PRECIS_HOST_DEVICE void add_stripe(const Input& in, std::size_t at, std::size_t key,
                                   std::uint64_t* sums) {
  for (std::size_t i = 0; i < kSums; i += 2) {
    add_pair(in.u64(at + i * 8), in.u64(at + i * 8 + 8), secret(key + i * 8),
             secret(key + i * 8 + 8), sums[i], sums[i + 1]);
  }
}

// Whether block `i` of an input of `size` bytes is followed by others.
PRECIS_HOST_DEVICE PRECIS_INLINE bool is_followed(std::size_t i, std::size_t size) {
  return (i + 1) * kBlockBytes < size;
}

// XXH3-128 of `size` bytes.
template <typename Input>
PRECIS_HOST_DEVICE Hash128 hash(const Input& in, std::size_t size) {
  if (size <= kShortBytesMax) return hash_short(in, size);
  std::uint64_t sums[kSums];
  for (std::size_t i = 0; i < kSums; ++i) sums[i] = first_sum(i);
  for (std::size_t block = 0; block * kBlockBytes < size; ++block) {
    for (std::size_t i = 0; i < kBlockBytes / kStripeBytes; ++i) {
      const std::size_t at = block * kBlockBytes + i * kStripeBytes;
      if (at + kStripeBytes < size) add_stripe(in, at, stripe_key(i), sums);
    }
    if (!is_followed(block, size)) break;
    for (std::size_t i = 0; i < kSums; ++i) sums[i] = scrambled(sums[i], i);
  }
  add_stripe(in, size - kStripeBytes, kLastStripeKey, sums);
  return finished(sums, size);
}

}  // namespace precis::kernels::xxh3
