// Rows of K and V in fewer bits. Each row is coded by itself, so that a cut of coded rows is a
// prefix of their bytes.
//
// A row x of d elements is rounded, for kInt4 after a rotation. The rotation is the Hadamard
// transform, without a factor, of each block of x, where a block has b elements, the largest power
// of two that divides d. It spreads an outlier over its block, so that the rounding costs all
// elements alike (QuaRot, arXiv:2404.00456). With 8 bits it brings nothing (docs/notes/rows.md):
// there, y is x, and b is 1. The coded row has:
//
//   step, a bf16: the largest |y| / 127 (kInt8) or / 7 (kInt4), rounded up; 0 if that is below
//     2^-126, and then the row decodes to zeros
//   codes: y times the reciprocal of the step in f32, rounded to the nearest, ties to even.
//     kInt8: one byte each, two's complement
//     kInt4: byte i has code i in its low half, and code d/2 + i in its high half
//
// Decoding multiplies by the step, transforms kInt4 again and divides by b.
#pragma once

#include <cstddef>
#include <cstdint>

#include "precis/status.h"
#include "precis/types.h"

namespace precis::kernels {

enum class RowCode : std::uint8_t { kInt8, kInt4 };

inline constexpr std::size_t kRowStepBytes = 2;

// The size of a coded row of `head_dim` elements.
constexpr std::size_t coded_row_bytes(RowCode code, std::uint32_t head_dim) {
  return kRowStepBytes + (code == RowCode::kInt8 ? head_dim : head_dim / 2 + head_dim % 2);
}

struct CodedRows {
  RowCode code = RowCode::kInt8;
  Dtype dtype = Dtype::kF32;  // of the rows that are coded, or decoded to
  std::uint32_t head_dim = 0;
  std::size_t count = 0;
};

// Both are contiguous: rows [count, head_dim] of the dtype, coded [count, coded_row_bytes()].
// Results are equal on every machine. A row of f16 decodes to finite elements. A row decodes to NaN
// if an element, or a sum of its transform, is not finite. Any bytes may be decoded.
// kInvalidArgument: head_dim is 0 or above limits::kHeadDimMax, or odd for kInt4.
Status encode_rows(const CodedRows& shape, const std::byte* rows, std::byte* coded);
Status decode_rows(const CodedRows& shape, const std::byte* coded, std::byte* rows);

}  // namespace precis::kernels
