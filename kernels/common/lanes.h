// Building blocks of the loops that isa.h compiles several times: 16-lane vectors and widening.
// Only for sources of precis_kernels, which are built with -Wno-psabi (kernels/CMakeLists.txt).
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/common/element_op.h"
#include "precis/types.h"

namespace precis::kernels {

// Sixteen f32 lanes: one, two or four registers. Sums over lanes use the fixed order of sum_lanes,
// so a result depends on the instruction set alone, never on threads.
inline constexpr std::size_t kLanes = 16;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

PRECIS_INLINE Lanes load_lanes(const float* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
PRECIS_INLINE void store_lanes(float* p, Lanes v) { std::memcpy(p, &v, sizeof v); }

PRECIS_INLINE float sum_lanes(Lanes v) {
  float x[kLanes];
  store_lanes(x, v);
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) x[i] += x[i + width];
  }
  return x[0];
}

PRECIS_INLINE float dot(const float* a, const float* b, std::size_t count) {
  Lanes sum = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sum += load_lanes(a + i) * load_lanes(b + i);
  float tail = 0;
  for (; i < count; ++i) tail += a[i] * b[i];
  return sum_lanes(sum) + tail;
}

PRECIS_INLINE float sum(const float* x, std::size_t count) {
  Lanes lanes = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) lanes += load_lanes(x + i);
  float tail = 0;
  for (; i < count; ++i) tail += x[i];
  return sum_lanes(lanes) + tail;
}

// sums[r] = sum_lanes of rows[r] for sixteen rows, in the same order of additions, but with
// shuffles of four lanes only: each row's four quarters are added, then the quarters of four rows
// at a time.
PRECIS_INLINE void sum_each(const float (*rows)[kLanes], float* sums) {
  using Quad = float __attribute__((vector_size(4 * sizeof(float))));
  for (std::size_t r = 0; r < kLanes; r += 4) {
    Quad quads[4];
    for (std::size_t i = 0; i < 4; ++i) {
      Quad part[4];
      std::memcpy(part, rows[r + i], sizeof part);
      quads[i] = (part[0] + part[2]) + (part[1] + part[3]);
    }
    const Quad low = __builtin_shufflevector(quads[0], quads[1], 0, 4, 1, 5) +
                     __builtin_shufflevector(quads[0], quads[1], 2, 6, 3, 7);
    const Quad high = __builtin_shufflevector(quads[2], quads[3], 0, 4, 1, 5) +
                      __builtin_shufflevector(quads[2], quads[3], 2, 6, 3, 7);
    const Quad out = __builtin_shufflevector(low, high, 0, 1, 4, 5) +
                     __builtin_shufflevector(low, high, 2, 3, 6, 7);
    std::memcpy(sums + r, &out, sizeof out);
  }
}

using Words = std::uint32_t __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));
using Ints = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

// Compilers split a comparison of Lanes into single lanes on machines with narrower registers, but
// not operations on sign bits.
PRECIS_INLINE Lanes abs_lanes(Lanes v) {
  return __builtin_bit_cast(Lanes, __builtin_bit_cast(Words, v) & 0x7fffffffu);
}
PRECIS_INLINE Lanes where_negative(Lanes sign, Lanes then, Lanes otherwise) {
  const Words all = (Words)((Ints)sign >> 31);  // all bits set where `sign` is negative, none
                                                // elsewhere
  return (Lanes)(((Words)then & all) | ((Words)otherwise & ~all));
}
// NaN produced by arithmetic, which x86 makes negative, is ignored as the `a` of larger() and as
// the `b` of smaller().
PRECIS_INLINE Lanes larger(Lanes a, Lanes b) { return where_negative(a - b, b, a); }
PRECIS_INLINE Lanes smaller(Lanes a, Lanes b) { return where_negative(a - b, a, b); }

// The bits of an element.
template <Dtype dtype>
using BitsOf =
    std::conditional_t<dtype == Dtype::kF32, std::uint32_t,
                       std::conditional_t<dtype == Dtype::kF8E4M3, std::uint8_t, std::uint16_t>>;

// Converts one element from its bits, signed or unsigned; first_element() reads it from `src`.
template <Dtype dtype, typename Bits>
PRECIS_INLINE float element_of_bits(Bits bits) {
  if constexpr (dtype == Dtype::kF32) return f32_of_bits(static_cast<std::uint32_t>(bits));
  if constexpr (dtype == Dtype::kF8E4M3) return f32_of_f8(static_cast<std::uint8_t>(bits));
  const auto half = static_cast<std::uint16_t>(bits);
  return dtype == Dtype::kBf16 ? f32_of_bf16(half) : f32_of_f16(half);
}
template <Dtype dtype>
PRECIS_INLINE float first_element(const std::byte* src) {
  BitsOf<dtype> bits;
  std::memcpy(&bits, src, sizeof bits);
  return element_of_bits<dtype>(bits);
}

// Thirty-two channels of a row. The dtype alone decides which lane holds which channel (lane_of):
// with 16-bit elements, separating even from odd channels needs no shuffle.
struct Channels {
  Lanes a, b;
};
inline constexpr std::size_t kChannels = 2 * kLanes;

// The index of channel c in arrays that are combined with Channels.
constexpr std::size_t lane_of(Dtype dtype, std::size_t c) {
  if (dtype_size_bytes(dtype) != 2) return c;
  return c / kChannels * kChannels + c % 2 * kLanes + c % kChannels / 2;
}
constexpr std::size_t whole_channels(std::size_t count) {
  return (count + kChannels - 1) / kChannels * kChannels;
}

PRECIS_INLINE Channels load_channels(const float* p) {
  return {load_lanes(p), load_lanes(p + kLanes)};
}
PRECIS_INLINE void store_channels(float* p, const Channels& x) {
  store_lanes(p, x.a);
  store_lanes(p + kLanes, x.b);
}

// f32_of_f16 of the lower halves, without a comparison.
PRECIS_INLINE Lanes lanes_of_f16(Words bits) {
  const Words magnitude = bits & 0x7fffu;
  const Lanes finite = __builtin_bit_cast(Lanes, magnitude << 13) * f32_of_bits(0x77800000u);
  const Words special = (magnitude + (0x8000u - kF16ExponentBits)) >> 15;  // 1 or 0
  return __builtin_bit_cast(Lanes, __builtin_bit_cast(Words, finite) | (bits & 0x8000u) << 16 |
                                       ((0u - special) & kF32ExponentBits));
}

using Octets = std::uint8_t __attribute__((vector_size(kLanes)));
// The compiler turns a memcpy() of these into loads of single bytes.
using LooseOctets = std::uint8_t __attribute__((vector_size(kLanes), aligned(1), may_alias));
PRECIS_INLINE Octets load_octets(const std::byte* src) {
  return *reinterpret_cast<const LooseOctets*>(src);
}

// f32_of_f8 of sixteen elements, without a comparison.
PRECIS_INLINE Lanes lanes_of_f8(const std::byte* src) {
  const Words bits = __builtin_convertvector(load_octets(src), Words);
  const Words magnitude = bits & 0x7fu;
  const Words subnormal = 0u - ((magnitude - 8u) >> 31), nan = 0u - ((magnitude + 1u) >> 7);
  const Lanes above =
      __builtin_bit_cast(Lanes, (magnitude << 20) + 0x3c000000u + (subnormal & 0x00800000u));
  const Lanes finite = above - __builtin_bit_cast(Lanes, subnormal & 0x3c800000u);
  return __builtin_bit_cast(Lanes, __builtin_bit_cast(Words, finite) | (bits & 0x80u) << 24 |
                                       (nan & (kF32ExponentBits | 0x400000u)));
}

template <Dtype dtype>
PRECIS_INLINE Channels widen_channels(const std::byte* src) {
  if constexpr (dtype == Dtype::kF32) {
    return load_channels(reinterpret_cast<const float*>(src));
  } else if constexpr (dtype == Dtype::kF8E4M3) {
    return {lanes_of_f8(src), lanes_of_f8(src + kLanes)};
  } else {
    Words x;
    std::memcpy(&x, src, sizeof x);
    if constexpr (dtype == Dtype::kF16) return {lanes_of_f16(x & 0xffffu), lanes_of_f16(x >> 16)};
    return {__builtin_bit_cast(Lanes, x << 16), __builtin_bit_cast(Lanes, x & 0xffff0000u)};
  }
}

// As above, but only `left` channels are readable; the others are zero and not read.
template <Dtype dtype>
PRECIS_INLINE Channels widen_channels(const std::byte* src, std::size_t left) {
  if (left >= kChannels) return widen_channels<dtype>(src);
  alignas(64) std::byte part[kChannels * dtype_size_bytes(dtype)] = {};
  std::memcpy(part, src, left * dtype_size_bytes(dtype));
  return widen_channels<dtype>(part);
}

// `count` elements of `dtype` at `src` as f32: `src` itself if it is f32, else widened into
// `scratch`.
PRECIS_INLINE const float* widen(Dtype dtype, const std::byte* src, std::size_t count,
                                 float* scratch) {
  if (dtype == Dtype::kF32) return reinterpret_cast<const float*>(src);
  if (dtype == Dtype::kF8E4M3) {
    const auto* octet = reinterpret_cast<const std::uint8_t*>(src);
    for (std::size_t i = 0; i < count; ++i) scratch[i] = f32_of_f8(octet[i]);
    return scratch;
  }
  const auto* half = reinterpret_cast<const std::uint16_t*>(src);
  if (dtype == Dtype::kBf16) {
    for (std::size_t i = 0; i < count; ++i) scratch[i] = f32_of_bf16(half[i]);
  } else {
    for (std::size_t i = 0; i < count; ++i) scratch[i] = f32_of_f16(half[i]);
  }
  return scratch;
}

}  // namespace precis::kernels
