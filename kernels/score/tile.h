// The blocked product of every scorer that multiplies rows with tokens: 4 rows x 32 tokens in
// registers, tokens along the lanes. Only for loops that isa.h compiles.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/common/isa.h"
#include "kernels/common/lanes.h"

namespace precis::kernels {

inline constexpr std::size_t kTileTokens = 2 * kLanes;
inline constexpr std::size_t kTileRows = 4;

constexpr std::size_t whole_tiles(std::size_t count, std::size_t tile) {
  return (count + tile - 1) / tile * tile;
}

// tile[c * kTileTokens + t] = token t's channel c: `count` rows of `dim` elements at `rows`,
// widened and transposed. Missing tokens are zero. `scratch`: dim.
PRECIS_INLINE void load_tile(Dtype dtype, const std::byte* rows, std::size_t count, std::size_t dim,
                             float* scratch, float* tile) {
  const std::size_t row_bytes = dim * dtype_size_bytes(dtype);
  if (count < kTileTokens) std::fill(tile, tile + dim * kTileTokens, 0.0f);
  for (std::size_t t = 0; t < count; ++t) {
    const float* row = widen(dtype, rows + t * row_bytes, dim, scratch);
    for (std::size_t c = 0; c < dim; ++c) tile[c * kTileTokens + t] = row[c];
  }
}

// Floats of one register.
template <std::size_t kBytes>
struct Register;
template <>
struct Register<16> {
  using Floats = float __attribute__((vector_size(16)));
};
template <>
struct Register<32> {
  using Floats = float __attribute__((vector_size(32)));
};
template <>
struct Register<64> {
  using Floats = Lanes;
};

// tile_products() in registers of kBytes: takes as many tokens at a time as two registers hold,
// because 4 x 2 sums fit every register file.
template <std::size_t kBytes>
PRECIS_INLINE void tile_products_in(const float* rows, const float* tile, std::size_t dim,
                                    float (*products)[kTileTokens]) {
  using Floats = typename Register<kBytes>::Floats;
  constexpr std::size_t kWidth = kBytes / sizeof(float);
  for (std::size_t t = 0; t < kTileTokens; t += 2 * kWidth) {
    Floats sum[kTileRows][2] = {};
    for (std::size_t c = 0; c < dim; ++c) {
      Floats low, high;
      std::memcpy(&low, tile + c * kTileTokens + t, kBytes);
      std::memcpy(&high, tile + c * kTileTokens + t + kWidth, kBytes);
      for (std::size_t r = 0; r < kTileRows; ++r) {
        const float x = rows[r * dim + c];
        sum[r][0] += x * low;
        sum[r][1] += x * high;
      }
    }
    for (std::size_t r = 0; r < kTileRows; ++r) {
      std::memcpy(products[r] + t, &sum[r][0], kBytes);
      std::memcpy(products[r] + t + kWidth, &sum[r][1], kBytes);
    }
  }
}

// products[r][t] = rows[r] . token t, for kTileRows rows of `dim`. The result is the same for every
// register size.
PRECIS_INLINE void tile_products(const float* rows, const float* tile, std::size_t dim,
                                 float (*products)[kTileTokens]) {
  switch (register_bytes()) {
    case 64: return tile_products_in<64>(rows, tile, dim, products);
    case 32: return tile_products_in<32>(rows, tile, dim, products);
    default: return tile_products_in<16>(rows, tile, dim, products);
  }
}

// Square matrices [.., dim, dim], each with its rows padded to whole tiles with zeros.
inline std::vector<float> padded_matrices(std::span<const float> matrices, std::size_t dim) {
  const std::size_t size = dim * dim, padded = whole_tiles(dim, kTileRows) * dim;
  std::vector<float> out(matrices.size() / size * padded);
  for (std::size_t i = 0; i < matrices.size(); ++i) out[i / size * padded + i % size] = matrices[i];
  return out;
}

// forms[t] = x^T matrix x for the tokens x of a tile. `matrix`: one of padded_matrices().
PRECIS_INLINE void tile_quadratic_forms(const float* matrix, const float* tile, std::size_t dim,
                                        float* forms) {
  float products[kTileRows][kTileTokens];
  Lanes low = {}, high = {};
  for (std::size_t r0 = 0; r0 < dim; r0 += kTileRows) {
    tile_products(matrix + r0 * dim, tile, dim, products);
    for (std::size_t r = 0; r < std::min(kTileRows, dim - r0); ++r) {
      const float* x = tile + (r0 + r) * kTileTokens;
      low += load_lanes(products[r]) * load_lanes(x);
      high += load_lanes(products[r] + kLanes) * load_lanes(x + kLanes);
    }
  }
  store_lanes(forms, low);
  store_lanes(forms + kLanes, high);
}

}  // namespace precis::kernels
