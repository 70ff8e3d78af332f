// Takes rows of a head sixteen at a time, so that the work per row is vectorised too: a row's sum
// is first spread over sixteen lanes, and sixteen such sums become one vector. Only for loops that
// isa.h compiles.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/common/lanes.h"
#include "kernels/common/lines.h"

namespace precis::kernels {

inline constexpr std::size_t kRowsInBlock = kLanes;

// [count, dim], contiguous.
struct RowSpan {
  const std::byte* data;
  std::size_t count, dim;
  Dtype dtype;
  PRECIS_INLINE std::size_t row_bytes() const { return dim * dtype_size_bytes(dtype); }
  PRECIS_INLINE const std::byte* row(std::size_t t) const { return data + t * row_bytes(); }
  PRECIS_INLINE std::size_t block_count(std::size_t first) const {
    return std::min(kRowsInBlock, count - first);
  }
  // For walks towards higher (behind) and towards lower (before) rows: prefetches a row a few KiB
  // after, or before, row t, because hardware prefetchers stop at the end of each page. Prefetches
  // row by row, because a burst of requests would delay the loads after it. The distances and cache
  // levels are the fastest that were measured.
  PRECIS_INLINE void prefetch_behind(std::size_t t) const {
    const std::byte* line = row(t) + 2048;
    for (std::size_t i = 0; i < row_bytes(); i += kLineBytes) __builtin_prefetch(line + i, 0, 2);
  }
  PRECIS_INLINE void prefetch_before(std::size_t t) const {
    const std::byte* line = row(t) - std::max<std::size_t>(4096, kRowsInBlock * row_bytes());
    for (std::size_t i = 0; i < row_bytes(); i += kLineBytes) __builtin_prefetch(line + i, 0, 3);
  }
};

// Runs `loop`, with dim as a constant if it is common among models: the compiler then keeps a row's
// channels in registers. `loop`: a callable of RowSpan, always inlined.
template <Dtype dtype, typename Loop>
PRECIS_INLINE void with_dim(RowSpan rows, const Loop& loop) {
  if (dtype != Dtype::kF32 && rows.dim == 128) {
    rows.dim = 128;
    loop(rows);
  } else if (dtype != Dtype::kF32 && rows.dim == 64) {
    rows.dim = 64;
    loop(rows);
  } else {
    loop(rows);
  }
}

enum class RowSum { kMagnitudes, kSquares };

template <RowSum sum>
PRECIS_INLINE Lanes summand(Lanes x) {
  return sum == RowSum::kSquares ? x * x : abs_lanes(x);
}

// A row's sum, spread over lanes.
template <RowSum sum, Dtype dtype>
PRECIS_INLINE Lanes spread_sum(const std::byte* row, std::size_t dim) {
  Lanes a = {}, b = {};
  for (std::size_t c = 0; c < dim; c += kChannels) {
    const Channels x = widen_channels<dtype>(row + c * dtype_size_bytes(dtype), dim - c);
    a += summand<sum>(x.a);
    b += summand<sum>(x.b);
  }
  return a + b;
}

// sums[kRowsInBlock]: sums of rows [first, first + block_count(first)), then zeros.
template <RowSum sum, Dtype dtype>
PRECIS_INLINE void sum_block(const RowSpan& rows, std::size_t first, float* sums) {
  float spread[kRowsInBlock][kLanes];
  const std::size_t count = rows.block_count(first);
  if (count < kRowsInBlock) std::memset(spread, 0, sizeof spread);
  for (std::size_t r = 0; r < count; ++r) {
    rows.prefetch_behind(first + r);
    store_lanes(spread[r], spread_sum<sum, dtype>(rows.row(first + r), rows.dim));
  }
  sum_each(spread, sums);
}

}  // namespace precis::kernels
