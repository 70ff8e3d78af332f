// The loop that codes rows of 16, 32, 64, 128 or 256 elements in registers (precis/row_code.h).
// Only for loops that isa.h compiles.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "kernels/encode/row_code_op.h"
#include "kernels/encode/row_code_vectors.h"

namespace precis::kernels {

template <Dtype dtype>
PRECIS_INLINE Lanes widened(const std::byte* src) {
  if constexpr (dtype == Dtype::kF32) {
    return load_lanes(reinterpret_cast<const float*>(src));
  } else if constexpr (dtype == Dtype::kF8E4M3) {
    return lanes_of_f8(src);
  } else {
    Halves half;
    std::memcpy(&half, src, sizeof half);
    const Words bits = __builtin_convertvector(half, Words);
    if constexpr (dtype == Dtype::kF16) return lanes_of_f16(bits);
    return (Lanes)(bits << 16);
  }
}

template <typename Vector>
PRECIS_INLINE auto largest_lane(Vector v) {
  constexpr auto kAll = std::make_integer_sequence<int, int{kLanes}>();
  v = larger_of(v, exchanged<8>(v, kAll));
  v = larger_of(v, exchanged<4>(v, kAll));
  v = larger_of(v, exchanged<2>(v, kAll));
  return larger_of(v, exchanged<1>(v, kAll))[0];
}

// The largest magnitude, by the bits of f32: NaN is larger than every number.
template <std::size_t kVectors>
PRECIS_INLINE float largest_of(const std::array<Lanes, kVectors>& x) {
  Ints largest = {};
  for (const Lanes v : x) largest = larger_of(largest, (Ints)abs_lanes(v));
  return f32_of_bits(static_cast<std::uint32_t>(largest_lane(largest)));
}

// The bits of the largest magnitude of a row of halves. Bits and magnitudes have the same order.
template <std::size_t kVectors>
PRECIS_INLINE std::uint16_t largest_half(const std::byte* row) {
  Shorts largest = {};
  for (std::size_t i = 0; i < kVectors; ++i) {
    Shorts x;
    std::memcpy(&x, row + i * sizeof x, sizeof x);
    x &= 0x7fff;
    largest = larger_of(largest, x);
  }
  return static_cast<std::uint16_t>(largest_lane(largest));
}

// The codes of two vectors of halves, a byte each, computed without moving elements between lanes.
template <Dtype dtype>
PRECIS_INLINE Halves code_pairs(const std::byte* halves, float inverse) {
  const Channels x = widen_channels<dtype>(halves);
  const Words even = (Words)(x.a * inverse + kRoundingAddend) & 0xffu;
  const Words odd = (Words)(x.b * inverse + kRoundingAddend) << 8;
  return __builtin_convertvector((even | odd) & 0xffffu, Halves);
}

// Writes the bytes that packed_byte() defines.
template <RowCode code, std::size_t kVectors>
PRECIS_INLINE void pack(const std::array<Octets, kVectors>& codes, std::byte* out) {
  constexpr std::size_t kHalf = kVectors / 2, kQuarter = kVectors / 4;
  const auto store = [out](std::size_t i, Octets octets) {
    std::memcpy(out + i * kLanes, &octets, sizeof octets);
  };
  if constexpr (code == RowCode::kInt8) {
    for (std::size_t i = 0; i < kVectors; ++i) store(i, codes[i]);
  } else if constexpr (kVectors >= 4 || (kVectors == 2 && code == RowCode::kInt4)) {
    for (std::size_t i = 0; i < kHalf; ++i) store(i, (codes[i] & 0xf) | (codes[i + kHalf] << 4));
    for (std::size_t i = 0; i < kQuarter && code == RowCode::kInt6; ++i) {
      const auto upper = [&](std::size_t k) { return (codes[i + k * kQuarter] >> 4) & 3; };
      store(kHalf + i, upper(0) | upper(1) << 2 | upper(2) << 4 | upper(3) << 6);
    }
  } else {
    constexpr std::uint32_t kDim = kVectors * kLanes;
    std::uint8_t each[kDim];
    std::memcpy(each, codes.data(), kDim);
    for (std::uint32_t i = 0; i < RowForm{kDim, Dtype::kF32, code}.bytes() - kRowStepBytes; ++i) {
      out[i] = std::byte{packed_byte(code, kDim, each, i)};
    }
  }
}

// Encodes at most kLanes rows. Their steps are computed together, because each needs a chain of
// dependent operations, and one vector holds the steps of kLanes rows.
template <Dtype dtype, RowCode code, std::size_t kVectors>
PRECIS_INLINE void encode_rows_together(std::size_t count, const std::byte* rows,
                                        std::byte* coded) {
  constexpr std::uint32_t kDim = kVectors * kLanes;
  constexpr std::size_t kRow = kDim * dtype_size_bytes(dtype);
  constexpr std::size_t kCoded = RowForm{kDim, dtype, code}.bytes();
  // Halves without transform are compared by their bits. Only their codes need wider numbers.
  constexpr bool kAreHalves =
      code != RowCode::kInt4 && dtype_size_bytes(dtype) == 2 && kVectors % 2 == 0;
  std::array<Lanes, kVectors> x[kAreHalves ? 1 : kLanes];
  float largest[kLanes] = {}, inverses[kLanes];
  std::uint16_t steps[kLanes];
  for (std::size_t r = 0; r < count; ++r) {
    if constexpr (kAreHalves) {
      largest[r] = element_of_bits<dtype>(largest_half<kVectors>(rows + r * kRow));
    } else {
      for (std::size_t i = 0; i < kVectors; ++i) {
        x[r][i] = widened<dtype>(rows + r * kRow + i * kLanes * dtype_size_bytes(dtype));
      }
      if constexpr (code == RowCode::kInt4) rotate(x[r]);
      largest[r] = largest_of(x[r]);
    }
  }
  for (std::size_t r = 0; r < kLanes; ++r) {
    steps[r] = step_bits(code, largest[r]);
    inverses[r] = inverse_step(steps[r]);
  }
  for (std::size_t r = 0; r < count; ++r) {
    std::array<Octets, kVectors> codes;
    if constexpr (kAreHalves) {
      for (std::size_t i = 0; i < kVectors / 2; ++i) {
        const Halves pairs = code_pairs<dtype>(rows + r * kRow + i * sizeof(Words), inverses[r]);
        std::memcpy(&codes[2 * i], &pairs, sizeof pairs);
      }
    } else {
      // Without the mask, the compiler converts lane by lane.
      for (std::size_t i = 0; i < kVectors; ++i) {
        const auto rounded = (Words)(x[r][i] * inverses[r] + kRoundingAddend);
        codes[i] = __builtin_convertvector(rounded & 0xffu, Octets);
      }
    }
    std::memcpy(coded + r * kCoded, &steps[r], kRowStepBytes);
    pack<code, kVectors>(codes, coded + r * kCoded + kRowStepBytes);
  }
}

template <Dtype dtype, RowCode code, std::size_t kVectors>
PRECIS_INLINE void encode_loop(std::size_t count, const std::byte* rows, std::byte* coded) {
  constexpr std::uint32_t kDim = kVectors * kLanes;
  for (std::size_t r = 0; r < count; r += kLanes) {
    encode_rows_together<dtype, code, kVectors>(std::min(count - r, kLanes),
                                                rows + r * kDim * dtype_size_bytes(dtype),
                                                coded + r * RowForm{kDim, dtype, code}.bytes());
  }
}

}  // namespace precis::kernels
