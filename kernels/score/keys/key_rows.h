// Rows of K without their RoPE, and the two passes of keydiff and kvdiff over them: the sum of unit
// keys, then each key's product with their mean. Only for loops that isa.h compiles.
#pragma once

#include "kernels/score/keys/key_scores_op.h"
#include "kernels/score/keys/unrotation.h"
#include "kernels/score/row_blocks.h"
#include "precis/limits.h"

namespace precis::kernels {

// Rows of K from token `first` on, which begins a block of `turns`. A turn is a rotation by RoPE
// (unrotation.h).
struct KeyRows {
  RowSpan rows;
  std::size_t first;
  const Unrotation& turns;
  std::size_t pairs;  // of `turns`
};

// Runs a pass, with dim and pairs as compile-time constants for the keys of most models, of which
// RoPE rotates all channels or none.
template <Dtype dtype, typename Pass>
PRECIS_INLINE void run_pass(const KeyRows& keys, const Pass& pass) {
  KeyRows known = keys;
  if (dtype != Dtype::kF32 && keys.rows.dim == 128 && keys.pairs == 0) {
    known.rows.dim = 128;
    known.pairs = 0;
    pass(known);
  } else if (dtype != Dtype::kF32 && keys.rows.dim == 128 && keys.pairs == 64) {
    known.rows.dim = 128;
    known.pairs = 64;
    pass(known);
  } else {
    pass(keys);
  }
}

// Layout of sums of keys and of anchors: the pairs' first elements, then their second elements,
// then the channels that RoPE does not rotate; each part in whole Channels, padded with zeros.
inline std::size_t key_sum_width(const Unrotation& turns, std::size_t dim) {
  return 2 * turns.width() + whole_channels(dim - 2 * turns.pairs());
}

// sum += `count` rows x inverse[r], for the channels from `still` on, which RoPE does not rotate.
template <Dtype dtype>
PRECIS_INLINE void add_still(const RowSpan& rows, std::size_t first, std::size_t count,
                             std::size_t still, const float* inverse, float* sum) {
  const std::size_t row_bytes = rows.row_bytes();
  for (std::size_t c = still; c < rows.dim; c += kChannels, sum += kChannels) {
    const std::byte* at = rows.row(first) + c * dtype_size_bytes(dtype);
    Channels total = load_channels(sum);
    for (std::size_t r = 0; r < count; ++r, at += row_bytes) {
      const Channels x = widen_channels<dtype>(at, rows.dim - c);
      total.a += x.a * inverse[r];
      total.b += x.b * inverse[r];
    }
    store_channels(sum, total);
  }
}

// The same for pairs, with each row's pairs rotated back by its step.
template <Dtype dtype>
PRECIS_INLINE void add_turned(const KeyRows& keys, std::size_t first, std::size_t count,
                              const float* inverse, float* sum) {
  const std::size_t row_bytes = keys.rows.row_bytes();
  const std::size_t pairs = keys.pairs, width = whole_channels(pairs);
  const float* steps = keys.turns.step(keys.first + first);
  for (std::size_t c = 0; c < pairs; c += kChannels) {
    const std::byte* at = keys.rows.row(first) + c * dtype_size_bytes(dtype);
    Channels sum_x = load_channels(sum + c), sum_y = load_channels(sum + width + c);
    for (std::size_t r = 0; r < count; ++r, at += row_bytes) {
      Channels x = widen_channels<dtype>(at, pairs - c);
      Channels y = widen_channels<dtype>(at + pairs * dtype_size_bytes(dtype), pairs - c);
      turn_back(x, y, steps + 2 * width * r + c, width);
      sum_x.a += x.a * inverse[r];
      sum_x.b += x.b * inverse[r];
      sum_y.a += y.a * inverse[r];
      sum_y.b += y.b * inverse[r];
    }
    store_channels(sum + c, sum_x);
    store_channels(sum + width + c, sum_y);
  }
}

// sum += part, rotated back by the block's rotation; then clears `part`.
PRECIS_INLINE void add_block(const Unrotation& turns, const float* turn, float* part, float* sum) {
  const std::size_t width = turns.width();
  for (std::size_t c = 0; c < width; c += kLanes) {
    Lanes a = load_lanes(part + c), b = load_lanes(part + width + c);
    turn_back_lanes(a, b, load_lanes(turn + c), load_lanes(turn + width + c));
    store_lanes(sum + c, load_lanes(sum + c) + a);
    store_lanes(sum + width + c, load_lanes(sum + width + c) + b);
  }
  std::memset(part, 0, 2 * width * sizeof(float));
}

// sum [key_sum_width()] += unit keys; inverses[count]: 1 / each key's guarded norm.
template <Dtype dtype>
PRECIS_INLINE void add_unit_keys(const KeyRows& keys, float* sum, float* inverses) {
  const std::size_t pairs = keys.pairs, width = whole_channels(pairs);
  float part[limits::kHeadDimMax + 2 * kChannels] = {};
  for (std::size_t first = 0; first < keys.rows.count; first += kRowsInBlock) {
    float inverse[kRowsInBlock];
    sum_block<RowSum::kSquares, dtype>(keys.rows, first, inverse);
    for (float& x : inverse) x = 1.0f / guarded_norm(std::sqrt(x));
    std::copy_n(inverse, keys.rows.block_count(first), inverses + first);
    if (keys.rows.block_count(first) == kRowsInBlock) {  // a count that the compiler knows
      add_still<dtype>(keys.rows, first, kRowsInBlock, 2 * pairs, inverse, sum + 2 * width);
      add_turned<dtype>(keys, first, kRowsInBlock, inverse, part);
    } else {
      const std::size_t count = keys.rows.block_count(first);
      add_still<dtype>(keys.rows, first, count, 2 * pairs, inverse, sum + 2 * width);
      add_turned<dtype>(keys, first, count, inverse, part);
    }
    if (pairs == 0) continue;
    const std::size_t next = first + kRowsInBlock;
    if (next % Unrotation::kBlockTokens == 0 || next >= keys.rows.count) {
      add_block(keys.turns, keys.turns.block(keys.first + first), part, sum);
    }
  }
}

// row . anchor, spread over lanes.
template <Dtype dtype>
PRECIS_INLINE Lanes spread_product(const std::byte* row, std::size_t dim, const float* anchor) {
  Lanes a = {}, b = {};
  for (std::size_t c = 0; c < dim; c += kChannels) {
    const Channels x = widen_channels<dtype>(row + c * dtype_size_bytes(dtype), dim - c);
    a += x.a * load_lanes(anchor + c);
    b += x.b * load_lanes(anchor + c + kLanes);
  }
  return a + b;
}

// The same for the row's pairs, rotated back by `step`.
template <Dtype dtype>
PRECIS_INLINE Lanes spread_turned(const std::byte* row, std::size_t pairs, const float* step,
                                  const float* anchor) {
  const std::size_t width = whole_channels(pairs);
  Lanes a = {}, b = {};
  for (std::size_t c = 0; c < pairs; c += kChannels) {
    const std::byte* at = row + c * dtype_size_bytes(dtype);
    Channels x = widen_channels<dtype>(at, pairs - c);
    Channels y = widen_channels<dtype>(at + pairs * dtype_size_bytes(dtype), pairs - c);
    turn_back(x, y, step + c, width);
    a += x.a * load_lanes(anchor + c) + y.a * load_lanes(anchor + width + c);
    b += x.b * load_lanes(anchor + c + kLanes) + y.b * load_lanes(anchor + width + c + kLanes);
  }
  return a + b;
}

// turned = the anchor's pairs, rotated by the block's rotation, so that the block's keys need only
// be rotated back by their steps.
PRECIS_INLINE void turn_anchor(const Unrotation& turns, const float* turn, const float* anchor,
                               float* turned) {
  const std::size_t width = turns.width();
  for (std::size_t c = 0; c < width; c += kLanes) {
    Lanes a = load_lanes(anchor + c), b = load_lanes(anchor + width + c);
    turn_lanes(a, b, load_lanes(turn + c), load_lanes(turn + width + c));
    store_lanes(turned + c, a);
    store_lanes(turned + width + c, b);
  }
}

// scores[count]: on input the inverses of add_unit_keys(), on output the scores.
template <Dtype dtype>
PRECIS_INLINE void score_keys(const KeyRows& keys, const float* anchor, float* scores) {
  const RowSpan& rows = keys.rows;
  const std::size_t pairs = keys.pairs, width = whole_channels(pairs);
  const float* still = anchor + 2 * width;
  const float anchor_norm = std::sqrt(dot(anchor, anchor, key_sum_width(keys.turns, rows.dim)));
  float turned[limits::kHeadDimMax + 2 * kChannels];
  float spread[kRowsInBlock][kLanes] = {}, products[kRowsInBlock];
  for (std::size_t first = 0; first < rows.count; first += kRowsInBlock) {
    const std::size_t count = rows.block_count(first);
    if (pairs > 0 && first % Unrotation::kBlockTokens == 0) {
      turn_anchor(keys.turns, keys.turns.block(keys.first + first), anchor, turned);
    }
    for (std::size_t r = 0; r < count; ++r) {
      rows.prefetch_behind(first + r);
      const std::byte* row = rows.row(first + r);
      Lanes product = spread_product<dtype>(row + 2 * pairs * dtype_size_bytes(dtype),
                                            rows.dim - 2 * pairs, still);
      if (pairs > 0) {
        product +=
            spread_turned<dtype>(row, pairs, keys.turns.step(keys.first + first + r), turned);
      }
      store_lanes(spread[r], product);
    }
    sum_each(spread, products);
    for (std::size_t r = 0; r < count; ++r) {
      scores[first + r] = keydiff_score(products[r], scores[first + r], anchor_norm);
    }
  }
}

}  // namespace precis::kernels
