// XXH3 without a seed, for host and device, after its published description (xxHash,
// doc/xxhash_spec.md). xxHash itself hashes contiguous host memory; this code hashes device memory
// and memory that is not contiguous.
//
// An input is any type with u8(offset), u32(offset) and u64(offset), little-endian, at any offset.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"

namespace precis::kernels::xxh3 {

struct Hash128 {
  std::uint64_t low, high;
};

inline constexpr std::size_t kShortBytesMax = 240;  // longer inputs are hashed by stripes

inline constexpr std::uint64_t kPrime32_1 = 0x9e3779b1u, kPrime32_2 = 0x85ebca77u,
                               kPrime32_3 = 0xc2b2ae3du;
inline constexpr std::uint64_t kPrime64_1 = 0x9e3779b185ebca87u, kPrime64_2 = 0xc2b2ae3d27d4eb4fu,
                               kPrime64_3 = 0x165667b19e3779f9u, kPrime64_4 = 0x85ebca77c2b2ae63u,
                               kPrime64_5 = 0x27d4eb2f165667c5u;

// Bytes [8 * word, 8 * word + 8) of the default secret.
PRECIS_HOST_DEVICE inline std::uint64_t secret_word(std::size_t word) {
  static constexpr std::uint64_t kWords[] = {
      0xbe4ba423396cfeb8u, 0x1cad21f72c81017cu, 0xdb979083e96dd4deu, 0x1f67b3b7a4a44072u,
      0x78e5c0cc4ee679cbu, 0x2172ffcc7dd05a82u, 0x8e2443f7744608b8u, 0x4c263a81e69035e0u,
      0xcb00c391bb52283cu, 0xa32e531b8b65d088u, 0x4ef90da297486471u, 0xd8acdea946ef1938u,
      0x3f349ce33f76faa8u, 0x1d4f0bc7c7bbdcf9u, 0x3159b4cd4be0518au, 0x647378d9c97e9fc8u,
      0xc3ebd33483acc5eau, 0xeb6313faffa081c5u, 0x49daf0b751dd0d17u, 0x9e68d429265516d3u,
      0xfca1477d58be162bu, 0xce31d07ad1b8f88fu, 0x280416958f3acb45u, 0x7e404bbbcafbd7afu};
  return kWords[word];
}
// Eight bytes of the secret from any byte on.
PRECIS_HOST_DEVICE inline std::uint64_t secret(std::size_t byte) {
  const std::size_t shift = byte % 8 * 8;
  if (shift == 0) return secret_word(byte / 8);
  return secret_word(byte / 8) >> shift | secret_word(byte / 8 + 1) << (64 - shift);
}

struct Product {
  std::uint64_t low, high;
};
PRECIS_HOST_DEVICE inline Product multiply(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return {static_cast<std::uint64_t>(product), static_cast<std::uint64_t>(product >> 64)};
}
PRECIS_HOST_DEVICE inline std::uint64_t folded_product(std::uint64_t a, std::uint64_t b) {
  const Product product = multiply(a, b);
  return product.low ^ product.high;
}

PRECIS_HOST_DEVICE inline std::uint32_t swapped(std::uint32_t x) {
  return x >> 24 | (x >> 8 & 0xff00u) | (x << 8 & 0xff0000u) | x << 24;
}
PRECIS_HOST_DEVICE inline std::uint64_t swapped(std::uint64_t x) {
  return std::uint64_t{swapped(static_cast<std::uint32_t>(x))} << 32 |
         swapped(static_cast<std::uint32_t>(x >> 32));
}

PRECIS_HOST_DEVICE inline std::uint64_t avalanche(std::uint64_t x) {
  x = (x ^ x >> 37) * 0x165667919e3779f9u;
  return x ^ x >> 32;
}
// XXH64's final mix, for the shortest inputs.
PRECIS_HOST_DEVICE inline std::uint64_t avalanche_64(std::uint64_t x) {
  x = (x ^ x >> 33) * kPrime64_2;
  x = (x ^ x >> 29) * kPrime64_3;
  return x ^ x >> 32;
}

// At most 3 bytes.
template <typename Input>
PRECIS_HOST_DEVICE Hash128 hash_upto_3(const Input& in, std::size_t size) {
  if (size == 0) {
    return {avalanche_64(secret(64) ^ secret(72)), avalanche_64(secret(80) ^ secret(88))};
  }
  const std::uint32_t word = in.u8(size - 1) | static_cast<std::uint32_t>(size) << 8 |
                             std::uint32_t{in.u8(0)} << 16 | std::uint32_t{in.u8(size / 2)} << 24;
  const std::uint32_t turned = swapped(word) << 13 | swapped(word) >> 19;
  const auto key = [](std::size_t at) {  // XOR of the two halves of a secret word
    const std::uint64_t both = secret(at);
    return (both ^ both >> 32) & 0xffffffffu;
  };
  return {avalanche_64(key(0) ^ word), avalanche_64(key(8) ^ turned)};
}

// 4 to 8 bytes.
template <typename Input>
PRECIS_HOST_DEVICE Hash128 hash_upto_8(const Input& in, std::size_t size) {
  constexpr std::uint64_t kMix = 0x9fb21c651e98df25u;
  const std::uint64_t word = in.u32(0) | std::uint64_t{in.u32(size - 4)} << 32;
  auto [low, high] = multiply(secret(16) ^ secret(24) ^ word, kPrime64_1 + (size << 2));
  high += low << 1;
  low ^= high >> 3;
  low = (low ^ low >> 35) * kMix;
  return {low ^ low >> 28, avalanche(high)};
}

// 9 to 16 bytes.
template <typename Input>
PRECIS_HOST_DEVICE Hash128 hash_upto_16(const Input& in, std::size_t size) {
  const std::uint64_t first = in.u64(0), last = in.u64(size - 8);
  const std::uint64_t tail = secret(48) ^ secret(56) ^ last;
  auto [low, high] = multiply(secret(32) ^ secret(40) ^ first ^ last, kPrime64_1);
  low += std::uint64_t{size - 1} << 54;
  high += (tail & 0xffffffff00000000u) + (tail & 0xffffffffu) * kPrime32_2;
  low ^= swapped(high);
  const Product second = multiply(low, kPrime64_2);
  return {avalanche(second.low), avalanche(second.high + high * kPrime64_2)};
}

// Mixes 16 bytes at `at` with the secret's bytes at `key`.
template <typename Input>
PRECIS_HOST_DEVICE std::uint64_t mixed(const Input& in, std::size_t at, std::size_t key) {
  return folded_product(in.u64(at) ^ secret(key), in.u64(at + 8) ^ secret(key + 8));
}

// Mixes two pieces of 16 bytes into both sums of a medium input.
template <typename Input>
PRECIS_HOST_DEVICE void mix_pair(const Input& in, std::size_t a, std::size_t b, std::size_t key,
                                 Hash128& sums) {
  sums.low = (sums.low + mixed(in, a, key)) ^ (in.u64(b) + in.u64(b + 8));
  sums.high = (sums.high + mixed(in, b, key + 16)) ^ (in.u64(a) + in.u64(a + 8));
}

// 17 to 240 bytes.
template <typename Input>
PRECIS_HOST_DEVICE Hash128 hash_medium(const Input& in, std::size_t size) {
  Hash128 sums{size * kPrime64_1, 0};
  if (size <= 128) {
    for (std::size_t i = (size - 1) / 32 + 1; i-- > 0;) {
      mix_pair(in, i * 16, size - i * 16 - 16, i * 32, sums);
    }
  } else {
    for (std::size_t i = 0; i < 4; ++i) mix_pair(in, i * 32, i * 32 + 16, i * 32, sums);
    sums = {avalanche(sums.low), avalanche(sums.high)};
    for (std::size_t i = 4; i < size / 32; ++i) {
      mix_pair(in, i * 32, i * 32 + 16, (i - 4) * 32 + 3, sums);
    }
    mix_pair(in, size - 16, size - 32, 103, sums);
  }
  const std::uint64_t high = sums.low * kPrime64_1 + sums.high * kPrime64_4 + size * kPrime64_2;
  return {avalanche(sums.low + sums.high), std::uint64_t{0} - avalanche(high)};
}

// At most kShortBytesMax.
template <typename Input>
PRECIS_HOST_DEVICE Hash128 hash_short(const Input& in, std::size_t size) {
  if (size <= 3) return hash_upto_3(in, size);
  if (size <= 8) return hash_upto_8(in, size);
  if (size <= 16) return hash_upto_16(in, size);
  return hash_medium(in, size);
}

// XXH3-64 of 17 to 128 bytes.
template <typename Input>
PRECIS_HOST_DEVICE std::uint64_t hash64_medium(const Input& in, std::size_t size) {
  std::uint64_t sum = size * kPrime64_1;
  for (std::size_t i = (size - 1) / 32 + 1; i-- > 0;) {
    sum += mixed(in, i * 16, i * 32) + mixed(in, size - i * 16 - 16, i * 32 + 16);
  }
  return avalanche(sum);
}

}  // namespace precis::kernels::xxh3
