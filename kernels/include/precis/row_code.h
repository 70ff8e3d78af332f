// Rows of K and V in fewer bits. Each row is coded by itself, so that a cut of coded rows is a
// prefix of their bytes.
//
// A row x of d elements is rounded, for kInt4 after a rotation. The rotation is the Hadamard
// transform, without a factor, of each block of x, where a block has b elements, the largest power
// of two that divides d. It spreads an outlier over its block, so that the rounding costs all
// elements alike (QuaRot, arXiv:2404.00456). With 8 bits it brings nothing, and with
// 6 bits it costs much in keys with outliers (docs/notes/rows.md). y is the result, or x itself for
// kInt8 and kInt6, where b is 1. The coded row has:
//
//   step, a bf16: the largest |y| / 127 (kInt8), / 31 (kInt6) or / 7 (kInt4), rounded up; 0 if that
//     is below 2^-126, and then the row decodes to zeros
//   codes: y times the reciprocal of the step in f32, rounded to the nearest, ties to even.
//     kInt8: one byte each, two's complement
//     kInt4: byte i has code i in its low half, and code d/2 + i in its high half
//     kInt6: d/2 such bytes of the lower four bits of each code; then byte i has the upper two bits
//       of codes i, d/4 + i, d/2 + i and 3d/4 + i, the first in its lowest bits
//
// Decoding transforms the codes of kInt4 again, multiplies by step / b, and rounds to the dtype.
#pragma once

#include <cstddef>

#include "precis/row_form.h"

namespace precis::kernels {

// Both are contiguous: `rows` [count, head_dim] of the dtype, `coded` [count, form.bytes()]. Raw
// rows are copied. Results are equal on every machine. A row of f16 or f8 decodes to finite
// elements. A row decodes to NaN if an element, or a sum of its transform, is not finite. Any bytes
// may be decoded. The form must be valid.
void encode_rows(const RowForm& form, std::size_t count, const std::byte* rows, std::byte* coded);
void decode_rows(const RowForm& form, std::size_t count, const std::byte* coded, std::byte* rows);

// Whether coded rows decode to finite elements only.
bool decode_to_finite(const RowForm& form, std::size_t count, const std::byte* coded);

}  // namespace precis::kernels
