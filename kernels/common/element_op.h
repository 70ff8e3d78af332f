// Element arithmetic shared by both backends: widening to f32, finiteness by bits, exp.
// Branch-free, so that compilers vectorise loops over it.
#pragma once

#include <cstdint>

#include "kernels/common/host_device.h"

namespace precis::kernels {

inline constexpr std::uint32_t kF32ExponentBits = 0x7f800000u;
inline constexpr std::uint16_t kF16ExponentBits = 0x7c00u;
inline constexpr std::uint16_t kBf16ExponentBits = 0x7f80u;
inline constexpr std::uint8_t kF8Nan = 0x7fu;

PRECIS_HOST_DEVICE PRECIS_INLINE float f32_of_bits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint32_t bits_of_f32(float x) {
  return __builtin_bit_cast(std::uint32_t, x);
}

PRECIS_HOST_DEVICE PRECIS_INLINE float f32_of_bf16(std::uint16_t x) {
  return f32_of_bits(std::uint32_t{x} << 16);
}

// Exact for every f16. A multiplication by 2^112 rebiases the exponent and normalises subnormals;
// only infinities and NaN need their exponent restored.
PRECIS_HOST_DEVICE PRECIS_INLINE float f32_of_f16(std::uint16_t x) {
  const std::uint32_t sign = (x & 0x8000u) << 16;
  const std::uint32_t magnitude = (x & 0x7fffu) << 13;
  const std::uint32_t finite = bits_of_f32(f32_of_bits(magnitude) * f32_of_bits(0x77800000u));
  const bool special = (x & kF16ExponentBits) == kF16ExponentBits;
  return f32_of_bits(sign | (special ? magnitude | kF32ExponentBits : finite));
}

// Exact for every f8_e4m3, without arithmetic on subnormal f32, which is slow, and which some
// programs turn off. There are no infinities; NaN has all magnitude bits.
PRECIS_HOST_DEVICE PRECIS_INLINE float f32_of_f8(std::uint8_t x) {
  const std::uint32_t magnitude = x & 0x7fu;
  const bool subnormal = magnitude < 8;  // an eighth of 2^-6 for each unit
  const std::uint32_t bits = (magnitude << 20) + (subnormal ? 0x3c800000u : 0x3c000000u);
  const float finite = f32_of_bits(bits) - (subnormal ? 0.015625f : 0.0f);
  const std::uint32_t nan = magnitude == kF8Nan ? kF32ExponentBits | 0x400000u : 0u;
  return f32_of_bits(bits_of_f32(finite) | nan | (x & 0x80u) << 24);
}

// Exact, because bf16 has more bits of exponent and of mantissa.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint16_t bf16_of_f8(std::uint8_t x) {
  return static_cast<std::uint16_t>(bits_of_f32(f32_of_f8(x)) >> 16);
}

// e^x for x <= 88, within 2 units in the last place; 0 from -87.3 down, where results would be
// subnormal, so e^-inf is 0. Cody-Waite reduction to [-ln2/2, ln2/2], then the Taylor polynomial of
// degree 7, whose error there is below 2^-27.
PRECIS_HOST_DEVICE PRECIS_INLINE float exp_f32(float x) {
  const float clamped = x > -87.3f ? x : -87.3f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer
  const float k = (clamped * 1.44269504f + kRound) - kRound;
  const float r = (clamped - k * 0.693359375f) - k * -2.12194440e-4f;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = (p * r + 1.0f) * r + 1.0f;
  const auto power = static_cast<std::int32_t>(k);
  const float scale = f32_of_bits(static_cast<std::uint32_t>(power + 127) << 23);
  return x > -87.3f ? p * scale : 0.0f;
}

// ln x for normal x > 0, within 3 units in the last place of the larger of |ln x| and 1. x is
// m * 2^k with m in [sqrt(1/2), sqrt(2)); the omitted terms of the series of artanh((m - 1) / (m +
// 1)) are below 2^-28.
PRECIS_HOST_DEVICE PRECIS_INLINE float log_f32(float x) {
  const std::uint32_t shifted = bits_of_f32(x) - 0x3f3504f3u;  // the bits of sqrt(1/2)
  const auto k = static_cast<float>(static_cast<std::int32_t>(shifted) >> 23);
  const float m = f32_of_bits((shifted & 0x007fffffu) + 0x3f3504f3u);
  const float s = (m - 1.0f) / (m + 1.0f), square = s * s;
  float p = 1.0f / 9.0f;
  p = p * square + 1.0f / 7.0f;
  p = p * square + 1.0f / 5.0f;
  p = p * square + 1.0f / 3.0f;
  return k * 0.693359375f + (k * -2.12194440e-4f + (2.0f * s + 2.0f * s * square * p));
}

}  // namespace precis::kernels
