// The arithmetic of coded rows (precis/row_code.h), for one element. Both backends must follow it.
#pragma once

#include <cstdint>

#include "kernels/common/element_op.h"
#include "precis/row_code.h"

namespace precis::kernels {

// The elements of a block that is rotated.
constexpr std::uint32_t rotated_block(RowCode code, std::uint32_t head_dim) {
  return code == RowCode::kInt4 ? head_dim & (0u - head_dim) : 1;
}

// The codes are in [-largest, largest].
constexpr float largest_code(RowCode code) {
  return code == RowCode::kInt8 ? 127.0f : code == RowCode::kInt6 ? 31.0f : 7.0f;
}

inline constexpr std::uint16_t kNanStep = 0x7fc0, kLeastStep = 0x0080;  // 2^-126, whose reciprocal
                                                                        // is finite

// The step as the bits of a bf16, for the largest magnitude of a row: rounded up, so that no code
// is larger than the largest.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint16_t step_bits(RowCode code, float largest) {
  if (!(bits_of_f32(largest) < kF32ExponentBits)) return kNanStep;
  const std::uint32_t bits = bits_of_f32(largest / largest_code(code));
  const auto rounded = static_cast<std::uint16_t>((bits + 0xffffu) >> 16);
  return rounded < kLeastStep ? std::uint16_t{0} : rounded;
}
// The reciprocal of the step: elements are multiplied by it, not divided. 0 for a row of zeros.
PRECIS_HOST_DEVICE PRECIS_INLINE float inverse_step(std::uint16_t bits) {
  return bits == 0 ? 0.0f : 1.0f / f32_of_bf16(bits);
}

// Whether a row with this step decodes to finite elements. A row of kInt4 is a sum of steps divided
// by their number, so no element is above the product. Rows of f16 and f8 stop at the
// largest number of their type.
PRECIS_HOST_DEVICE PRECIS_INLINE bool decodes_to_finite(const RowForm& form, std::uint16_t step) {
  const float most = f32_of_bits(form.dtype == Dtype::kBf16 ? 0x7f7f0000u : 0x7f7fffffu);
  return f32_of_bf16(step) * largest_code(form.code) <= most;
}

// Returns byte i of the codes of a row of `dim` elements. `codes`: of each element, in two's
// complement.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint8_t packed_byte(RowCode code, std::uint32_t dim,
                                                          const std::uint8_t* codes,
                                                          std::uint32_t i) {
  const std::uint32_t half = dim / 2, quarter = dim / 4;
  if (code == RowCode::kInt8) return codes[i];
  if (i < half) return static_cast<std::uint8_t>((codes[i] & 0xfu) | codes[i + half] << 4);
  std::uint32_t upper = 0;
  for (std::uint32_t k = 0; k < 4; ++k) {
    upper |= (codes[i - half + k * quarter] >> 4 & 3u) << 2 * k;
  }
  return static_cast<std::uint8_t>(upper);
}
// Returns code i.
PRECIS_HOST_DEVICE PRECIS_INLINE int unpacked_code(RowCode code, std::uint32_t dim,
                                                   const std::byte* packed, std::uint32_t i) {
  const auto byte = [packed](std::uint32_t at) { return static_cast<std::uint32_t>(packed[at]); };
  if (code == RowCode::kInt8) return static_cast<std::int8_t>(byte(i));
  const std::uint32_t half = dim / 2, quarter = dim / 4;
  const std::uint32_t lower = i < half ? byte(i) & 0xfu : byte(i - half) >> 4;
  if (code == RowCode::kInt4) return static_cast<std::int8_t>(lower << 4) >> 4;
  const std::uint32_t upper = byte(half + i % quarter) >> 2 * (i / quarter) & 3u;
  return static_cast<std::int8_t>(lower << 2 | upper << 6) >> 2;
}

// Adding it to a small number leaves the nearest integer, ties to even, in the low bits.
inline constexpr float kRoundingAddend = 12582912.0f;  // 1.5 * 2^23

PRECIS_HOST_DEVICE PRECIS_INLINE std::uint16_t bf16_of_f32(float x) {
  const std::uint32_t bits = bits_of_f32(x);
  const bool is_nan = (bits & 0x7fffffffu) > kF32ExponentBits;
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>((is_nan ? bits | 0x400000u : rounded) >> 16);
}

// Rounds to the nearest, ties to even; 65520 and more become infinite. The addition of a power of
// two aligns the bits that an f16 keeps, also of subnormals.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint16_t f16_of_f32(float x) {
  const std::uint32_t bits = bits_of_f32(x), sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kF32ExponentBits) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | kF16ExponentBits);
  if (magnitude < 0x38800000u) {  // below 2^-14
    const float aligned = f32_of_bits(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (bits_of_f32(aligned) - bits_of_f32(0.5f)));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// A row of f16 must not decode to infinities, although its step was rounded up.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint16_t nearest_finite_f16(float x) {
  constexpr float kMost = 65504.0f;
  return f16_of_f32(x > kMost ? kMost : x < -kMost ? -kMost : x);
}

// Rounds to the nearest, ties to even, and at most to the largest finite number.
PRECIS_HOST_DEVICE PRECIS_INLINE std::uint8_t nearest_finite_f8(float x) {
  const std::uint32_t bits = bits_of_f32(x), sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kF32ExponentBits) return static_cast<std::uint8_t>(sign | kF8Nan);
  if (magnitude >= 0x43e00000u) return static_cast<std::uint8_t>(sign | 0x7eu);  // 448
  if (magnitude < 0x3c800000u) {                                                 // below 2^-6
    const float aligned = f32_of_bits(magnitude) + 16384.0f;
    return static_cast<std::uint8_t>(sign | (bits_of_f32(aligned) - bits_of_f32(16384.0f)));
  }
  const std::uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return static_cast<std::uint8_t>(sign | ((rounded - 0x3c000000u) >> 20));
}

}  // namespace precis::kernels
