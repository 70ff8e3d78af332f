// Loops that code and decode rows of 16, 32, 64, 128 or 256 elements in registers
// (precis/row_code.h). Only for loops that isa.h compiles.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "kernels/common/lanes.h"
#include "kernels/encode/row_code_op.h"

namespace precis::kernels {

using Halves = std::uint16_t __attribute__((vector_size(kLanes * sizeof(std::uint16_t))));
using Shorts = std::int16_t __attribute__((vector_size(kLanes * sizeof(std::int16_t))));
using Octets = std::uint8_t __attribute__((vector_size(kLanes)));
using SignedOctets = std::int8_t __attribute__((vector_size(kLanes)));
// The compiler turns a memcpy() of these into loads of single bytes.
using LooseOctets = std::int8_t __attribute__((vector_size(kLanes), aligned(1), may_alias));
PRECIS_INLINE SignedOctets load_octets(const std::byte* src) {
  return *reinterpret_cast<const LooseOctets*>(src);
}

PRECIS_INLINE Shorts larger_of(Shorts a, Shorts b) { return a > b ? a : b; }

template <int kStep, typename Vector, int... kLane>
PRECIS_INLINE Vector exchanged(Vector x, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(x, x, (kLane ^ kStep)...);
}
template <int kStep, int... kLane>
PRECIS_INLINE Words signs(std::integer_sequence<int, kLane...>) {
  return Words{((kLane & kStep) != 0 ? 0x80000000u : 0u)...};
}
// For each two lanes at a distance of kStep: their sum in the first, their difference in the
// second.
template <int kStep>
PRECIS_INLINE Lanes combined(Lanes x) {
  constexpr auto kAll = std::make_integer_sequence<int, int{kLanes}>();
  return exchanged<kStep>(x, kAll) + (Lanes)((Words)x ^ signs<kStep>(kAll));
}

// The stages go from the largest distance to the smallest, which decides how sums are rounded.
template <std::size_t kVectors>
PRECIS_INLINE void rotate(std::array<Lanes, kVectors>& x) {
  for (std::size_t step = kVectors / 2; step > 0; step /= 2) {
    for (std::size_t i = 0; i < kVectors; ++i) {
      if ((i & step) != 0) continue;
      const Lanes a = x[i], b = x[i + step];
      x[i] = a + b;
      x[i + step] = a - b;
    }
  }
  for (Lanes& v : x) v = combined<1>(combined<2>(combined<4>(combined<8>(v))));
}

template <Dtype dtype>
PRECIS_INLINE Lanes widened(const std::byte* src) {
  if constexpr (dtype == Dtype::kF32) {
    return load_lanes(reinterpret_cast<const float*>(src));
  } else {
    Halves half;
    std::memcpy(&half, src, sizeof half);
    const Words bits = __builtin_convertvector(half, Words);
    if constexpr (dtype == Dtype::kF16) return lanes_of_f16(bits);
    return (Lanes)(bits << 16);
  }
}

template <Dtype dtype>
PRECIS_INLINE void narrow(Lanes x, std::byte* dst) {
  if constexpr (dtype == Dtype::kF32) {
    store_lanes(reinterpret_cast<float*>(dst), x);
  } else if constexpr (dtype == Dtype::kBf16) {
    const Words bits = (Words)x;
    const Halves half =
        __builtin_convertvector((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, Halves);
    std::memcpy(dst, &half, sizeof half);
  } else {
    float lanes[kLanes];
    store_lanes(lanes, x);
    std::uint16_t half[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) half[i] = nearest_finite_f16(lanes[i]);
    std::memcpy(dst, half, sizeof half);
  }
}

// The numbers are not negative.
PRECIS_INLINE Ints larger_of(Ints a, Ints b) {
  const Ints more = b - a;
  return a + (more & ~(more >> 31));
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

// The magnitudes of a row of halves are in the order of their bits.
template <Dtype dtype, std::size_t kVectors>
PRECIS_INLINE float largest_of(const std::byte* row) {
  Shorts largest = {};
  for (std::size_t i = 0; i < kVectors; ++i) {
    Shorts x;
    std::memcpy(&x, row + i * sizeof x, sizeof x);
    x &= 0x7fff;
    largest = larger_of(largest, x);
  }
  return element_of_bits<dtype>(largest_lane(largest));
}

template <Dtype dtype, Encoding code, std::size_t kVectors>
PRECIS_INLINE void encode_row(const std::byte* row, std::byte* coded) {
  std::array<Lanes, kVectors> x;
  for (std::size_t i = 0; i < kVectors; ++i) {
    x[i] = widened<dtype>(row + i * kLanes * dtype_size_bytes(dtype));
  }
  if constexpr (code == Encoding::kInt4) rotate(x);
  constexpr bool kByHalves = code == Encoding::kInt8 && dtype != Dtype::kF32;
  const float largest = kByHalves ? largest_of<dtype, kVectors>(row) : largest_of(x);
  const std::uint16_t step = step_bits(code, largest);
  std::memcpy(coded, &step, sizeof step);
  coded += kRowStepBytes;
  const float inverse = inverse_step(step);
  std::array<Octets, kVectors> codes;
  // Without the mask, the compiler converts lane by lane.
  for (std::size_t i = 0; i < kVectors; ++i) {
    codes[i] = __builtin_convertvector((Words)(x[i] * inverse + kRoundingAddend) & 0xffu, Octets);
  }
  if constexpr (code == Encoding::kInt8) {
    for (std::size_t i = 0; i < kVectors; ++i) {
      std::memcpy(coded + i * kLanes, &codes[i], kLanes);
    }
  } else if constexpr (kVectors > 1) {
    for (std::size_t i = 0; i < kVectors / 2; ++i) {
      const Octets both = (codes[i] & 0xf) | (codes[i + kVectors / 2] << 4);
      std::memcpy(coded + i * kLanes, &both, sizeof both);
    }
  } else {
    for (std::size_t i = 0; i < kLanes / 2; ++i) {
      coded[i] = static_cast<std::byte>((codes[0][i] & 0xf) | codes[0][i + kLanes / 2] << 4);
    }
  }
}

PRECIS_INLINE Lanes lanes_of(SignedOctets codes) {
  return __builtin_convertvector(__builtin_convertvector(codes, Ints), Lanes);
}

template <Encoding code, std::size_t kVectors>
PRECIS_INLINE void read_codes(const std::byte* coded, std::array<Lanes, kVectors>& x) {
  if constexpr (code == Encoding::kInt8) {
    for (std::size_t i = 0; i < kVectors; ++i) {
      // Without the xor in between, the compiler loads byte by byte.
      const Octets biased = (Octets)load_octets(coded + i * kLanes) ^ 0x80;
      x[i] = __builtin_convertvector((Ints) __builtin_convertvector(biased, Words) - 128, Lanes);
    }
  } else if constexpr (kVectors > 1) {
    for (std::size_t i = 0; i < kVectors / 2; ++i) {
      const SignedOctets both = load_octets(coded + i * kLanes);
      x[i] = lanes_of((SignedOctets)((Octets)both << 4) >> 4);
      x[i + kVectors / 2] = lanes_of(both >> 4);
    }
  } else {
    for (std::size_t i = 0; i < kLanes / 2; ++i) {
      const auto both = std::to_integer<std::uint8_t>(coded[i]);
      x[0][i] = static_cast<float>(static_cast<std::int8_t>(both << 4) >> 4);
      x[0][i + kLanes / 2] = static_cast<float>(static_cast<std::int8_t>(both) >> 4);
    }
  }
}

template <Dtype dtype, Encoding code, std::size_t kVectors>
PRECIS_INLINE void decode_row(const std::byte* coded, std::byte* row) {
  std::uint16_t step;
  std::memcpy(&step, coded, sizeof step);
  std::array<Lanes, kVectors> x;
  read_codes<code, kVectors>(coded + kRowStepBytes, x);
  // The division by a power of two is exact, so it may come first.
  const float factor =
      f32_of_bf16(step) / static_cast<float>(rotated_block(code, kVectors * kLanes));
  for (Lanes& v : x) v *= factor;
  if constexpr (code == Encoding::kInt4) rotate(x);
  for (std::size_t i = 0; i < kVectors; ++i) {
    narrow<dtype>(x[i], row + i * kLanes * dtype_size_bytes(dtype));
  }
}

template <Dtype dtype, Encoding code, std::size_t kVectors>
PRECIS_INLINE void encode_loop(std::size_t count, const std::byte* rows, std::byte* coded) {
  constexpr std::uint32_t kDim = kVectors * kLanes;
  for (std::size_t r = 0; r < count; ++r) {
    encode_row<dtype, code, kVectors>(rows + r * kDim * dtype_size_bytes(dtype),
                                      coded + r * RowForm{kDim, dtype, code}.bytes());
  }
}
template <Dtype dtype, Encoding code, std::size_t kVectors>
PRECIS_INLINE void decode_loop(std::size_t count, const std::byte* coded, std::byte* rows) {
  constexpr std::uint32_t kDim = kVectors * kLanes;
  for (std::size_t r = 0; r < count; ++r) {
    decode_row<dtype, code, kVectors>(coded + r * RowForm{kDim, dtype, code}.bytes(),
                                      rows + r * kDim * dtype_size_bytes(dtype));
  }
}

}  // namespace precis::kernels
