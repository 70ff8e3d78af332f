// The loop that decodes rows of 16, 32, 64, 128 or 256 elements in registers (precis/row_code.h).
// Only for loops that isa.h compiles.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "kernels/encode/row_code_op.h"
#include "kernels/encode/row_code_vectors.h"

namespace precis::kernels {

template <Dtype dtype>
PRECIS_INLINE void narrow(Lanes x, std::byte* dst) {
  if constexpr (dtype == Dtype::kF32) {
    store_lanes(reinterpret_cast<float*>(dst), x);
  } else if constexpr (dtype == Dtype::kBf16) {
    const Words bits = (Words)x;
    const Halves half =
        __builtin_convertvector((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, Halves);
    std::memcpy(dst, &half, sizeof half);
  } else if constexpr (dtype == Dtype::kF8E4M3) {
    float lanes[kLanes];
    store_lanes(lanes, x);
    std::uint8_t octets[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) octets[i] = nearest_finite_f8(lanes[i]);
    std::memcpy(dst, octets, sizeof octets);
  } else {
    float lanes[kLanes];
    store_lanes(lanes, x);
    std::uint16_t half[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) half[i] = nearest_finite_f16(lanes[i]);
    std::memcpy(dst, half, sizeof half);
  }
}

// Reads a signed code of `bits` bits, which begins at bit `first`, from each word.
PRECIS_INLINE Ints codes_of(Words words, int bits, int first) {
  return (Ints)(words << (32 - bits - first)) >> (32 - bits);
}

// Sixteen bytes, masked and widened. Without a mask in between, the compiler loads byte by byte.
PRECIS_INLINE Words masked(const std::byte* coded, std::size_t vector, unsigned mask) {
  const auto octets = load_octets(coded + vector * kLanes);
  return __builtin_convertvector(octets & static_cast<std::uint8_t>(mask), Words);
}

// Reads the codes, and transforms those of kInt4. Sixteen bits hold the sums exactly: they are at
// most 8 times the number of elements.
template <RowCode code, std::size_t kVectors>
PRECIS_INLINE void read_codes(const std::byte* coded, std::array<Ints, kVectors>& codes) {
  static_assert(8 * kVectors * kLanes <= 32767);
  constexpr std::size_t kHalf = kVectors / 2, kQuarter = kVectors / 4;
  if constexpr (code == RowCode::kInt8) {
    for (std::size_t i = 0; i < kVectors; ++i) {
      // Without the xor in between, the compiler loads byte by byte.
      const Octets biased = load_octets(coded + i * kLanes) ^ 0x80;
      codes[i] = (Ints) __builtin_convertvector(biased, Words) - 128;
    }
  } else if constexpr (code == RowCode::kInt6 && kVectors >= 4) {
    for (std::size_t i = 0; i < kHalf; ++i) {
      const std::size_t upper = kHalf + i % kQuarter;
      const auto by = static_cast<unsigned>(2 * (i / kQuarter));  // where the upper bits begin
      codes[i] =
          codes_of(masked(coded, i, 0x0f) | masked(coded, upper, 0x03u << by) << (4 - by), 6, 0);
      codes[i + kHalf] =
          codes_of(masked(coded, i, 0xf0) | masked(coded, upper, 0x30u << by) << (4 - by), 6, 4);
    }
  } else {
    std::array<Shorts, kVectors> shorts;
    if constexpr (code == RowCode::kInt4 && kVectors >= 2) {
      for (std::size_t i = 0; i < kHalf; ++i) {
        const auto octets = load_octets(coded + i * kLanes);
        const auto lower = (Shorts) __builtin_convertvector(octets & 0x0f, Halves);
        const auto upper = (Shorts) __builtin_convertvector(octets & 0xf0, Halves);
        shorts[i] = (lower << 12) >> 12;
        shorts[i + kHalf] = (upper << 8) >> 12;
      }
    } else {
      for (std::uint32_t i = 0; i < kVectors * kLanes; ++i) {
        shorts[i / kLanes][i % kLanes] =
            static_cast<std::int16_t>(unpacked_code(code, kVectors * kLanes, coded, i));
      }
    }
    if constexpr (code == RowCode::kInt4) rotate(shorts);
    for (std::size_t i = 0; i < kVectors; ++i) codes[i] = __builtin_convertvector(shorts[i], Ints);
  }
}

template <Dtype dtype, RowCode code, std::size_t kVectors>
PRECIS_INLINE void decode_row(const std::byte* coded, std::byte* row) {
  std::uint16_t step;
  std::memcpy(&step, coded, sizeof step);
  std::array<Ints, kVectors> codes;
  read_codes<code, kVectors>(coded + kRowStepBytes, codes);
  const float factor =
      f32_of_bf16(step) / static_cast<float>(rotated_block(code, kVectors * kLanes));
  for (std::size_t i = 0; i < kVectors; ++i) {
    narrow<dtype>(__builtin_convertvector(codes[i], Lanes) * factor,
                  row + i * kLanes * dtype_size_bytes(dtype));
  }
}

template <Dtype dtype, RowCode code, std::size_t kVectors>
PRECIS_INLINE void decode_loop(std::size_t count, const std::byte* coded, std::byte* rows) {
  constexpr std::uint32_t kDim = kVectors * kLanes;
  for (std::size_t r = 0; r < count; ++r) {
    decode_row<dtype, code, kVectors>(coded + r * RowForm{kDim, dtype, code}.bytes(),
                                      rows + r * kDim * dtype_size_bytes(dtype));
  }
}

}  // namespace precis::kernels
