// x^T M x of many bf16 vectors by tile registers (amx.h), for value norms and expected attention.
// Only for loops that isa.h compiles.
//
// M counts by its symmetric part alone, so what stands above the diagonal is added to what stands
// below it and blocks of 32 x 32 above the diagonal are never multiplied. Every entry is the sum of
// two bf16, which leaves 2^-17 of its size; x is what it is and sums are in f32, so a form errs by
// some 1e-5 of |x|^T |M| |x| at most.
#pragma once

#include <span>
#include <vector>

#include "kernels/common/amx.h"
#include "kernels/common/lane_shuffles.h"
#include "kernels/common/thread_pool.h"
#include "kernels/score/tile.h"

namespace precis::kernels {

inline constexpr int kFormParts = 2;

// bf16 of one packed matrix: [part][panel of columns], both panels of a block even where the second
// is empty.
constexpr std::size_t packed_form_size(std::size_t dim) {
  return kFormParts * whole_tiles(dim, amx::kBlock) * amx::steps_of(dim) * amx::kStep;
}

inline void pack_form(const float* matrix, std::size_t dim, std::uint16_t* packed) {
  const std::size_t part = packed_form_size(dim) / kFormParts;
  std::fill(packed, packed + kFormParts * part, std::uint16_t{0});
  for (std::size_t a = 0; a < dim; ++a) {
    for (std::size_t b = 0; b <= a; ++b) {
      const float x = a == b ? matrix[a * dim + a] : matrix[a * dim + b] + matrix[b * dim + a];
      const std::size_t at = b / amx::kPanel * amx::panel_size(dim) +
                             a / amx::kStep * amx::kTileSize + a % amx::kStep / 2 * amx::kStep +
                             b % amx::kPanel * 2 + a % 2;
      packed[at] = amx::bf16_of_f32(x);
      packed[part + at] = amx::bf16_of_f32(x - f32_of_bf16(packed[at]));
    }
  }
}

// Square matrices [.., dim, dim], packed.
inline amx::Panels packed_forms(const CpuContext& context, std::span<const float> matrices,
                                std::size_t dim) {
  const std::size_t count = matrices.size() / (dim * dim), size = packed_form_size(dim);
  amx::Panels packed(count * size);
  context.pool.parallel_for(count, [&](std::size_t i) {
    pack_form(matrices.data() + i * dim * dim, dim, packed.data() + i * size);
  });
  return packed;
}

// Adds the products of a block of vectors with 32 columns of a matrix, times the vectors' channels
// of those columns, to sums[amx::kBlock], lane by lane.
struct AddForms {
  const float *products, *vectors, *linear;  // [amx::kBlock] of each; vectors `width` apart
  std::size_t width;
  Lanes* sums;
  PRECIS_INLINE void operator()(std::size_t piece) const {
    constexpr std::size_t kRows = amx::kBlock / amx::kPieces;
    const Lanes low = load_lanes(linear), high = load_lanes(linear + kLanes);
    for (std::size_t t = piece * kRows; t < (piece + 1) * kRows; ++t) {
      const float *x = vectors + t * width, *y = products + t * amx::kBlock;
      sums[t] += (load_lanes(y) + low) * load_lanes(x) +
                 (load_lanes(y + kLanes) + high) * load_lanes(x + kLanes);
    }
  }
};

// amx::kBlock vectors at a time: packed, and widened to multiply the products.
class FormVectors {
 public:
  explicit FormVectors(std::size_t dim)
      : dim_(dim),
        width_(whole_tiles(dim, amx::kBlock)),
        zeros_(width_, 0.0f),
        wide_(amx::kBlock * width_, 0.0f),
        packed_(2 * amx::panel_size(dim)) {}

  // `count` <= amx::kBlock rows of bf16 at `rows`.
  PRECIS_INLINE void load(const std::byte* rows, std::size_t count) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(rows);
    for (std::size_t t = 0; t < count; ++t) {
      float* wide = wide_.data() + t * width_;
      for (std::size_t c = 0; c < dim_; ++c) wide[c] = f32_of_bf16(from[t * dim_ + c]);
    }
    std::fill(wide_.data() + count * width_, wide_.data() + amx::kBlock * width_, 0.0f);
    for (std::size_t t = 0; t < amx::kBlock; t += amx::kPanel) {
      const std::size_t left = count > t ? std::min(amx::kPanel, count - t) : 0;
      amx::pack_left(from + t * dim_, dim_, left, dim_,
                     packed_.data() + t / amx::kPanel * amx::panel_size(dim_));
    }
  }

  // forms[t] = x_t^T M x_t + linear . x_t; `linear`: null, or width() of f32.
  PRECIS_INLINE void forms(const std::uint16_t* matrix, const float* linear, float* forms) const {
    const std::size_t panel = amx::panel_size(dim_), steps = amx::steps_of(dim_);
    const amx::TwoParts parts{packed_form_size(dim_) / kFormParts};
    if (linear == nullptr) linear = zeros_.data();
    alignas(64) float products[2][amx::kBlock * amx::kBlock];
    Lanes sums[amx::kBlock] = {};
    AddForms waiting{nullptr, wide_.data(), linear, width_, sums};
    for (std::size_t first = 0; first < width_; first += amx::kBlock) {
      float* next = products[first / amx::kBlock % 2];
      const std::uint16_t* columns = matrix + first / amx::kPanel * panel;
      const std::size_t step = first / amx::kStep;
      if (first == 0) {
        amx::multiply(packed_.data(), columns, panel, step, steps, parts, next, [](std::size_t) {});
      } else {
        amx::multiply(packed_.data(), columns, panel, step, steps, parts, next, waiting);
      }
      waiting.products = next;
      waiting.vectors = wide_.data() + first;
      waiting.linear = linear + first;
    }
    for (std::size_t piece = 0; piece < amx::kPieces; ++piece) waiting(piece);
    for (std::size_t t = 0; t < amx::kBlock; t += kLanes) {
      store_lanes(forms + t, sums_of_lanes(sums + t));
    }
  }

  std::size_t width() const { return width_; }

 private:
  std::size_t dim_, width_;
  AlignedArray<float> zeros_;  // [width]
  AlignedArray<float> wide_;   // [amx::kBlock, width]
  amx::Panels packed_;         // two left panels
};

}  // namespace precis::kernels
