// x^T M x of many bf16 vectors with tile registers (amx.h), for value norms and expected attention.
// Only for loops that isa.h compiles.
//
// Only the symmetric part of M matters. So the entries above the diagonal are added to those below,
// and blocks of 32 x 32 above the diagonal are never multiplied. Every entry is stored as the sum
// of two bf16, with a relative error of 2^-17; x is exact and sums are in f32. So the error of a
// form is at most about 1e-5 of |x|^T |M| |x|.
#pragma once

#include <span>
#include <vector>

#include "kernels/common/amx.h"
#include "kernels/common/thread_pool.h"
#include "kernels/score/tile.h"

namespace precis::kernels {

inline constexpr int kFormParts = 2;
static_assert(amx::kBlock == amx::kStep);  // a block of columns begins at a step of depth

// bf16 of one packed matrix: [part][left panel of 16 of its columns]. Both panels of a block are
// counted even if the second is empty.
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
                             a / amx::kStep * amx::kTileSize + b % amx::kPanel * amx::kStep +
                             a % amx::kStep;
      packed[at] = amx::bf16_of_f32(x);
      packed[part + at] = amx::bf16_of_f32(x - f32_of_bf16(packed[at]));
    }
  }
}

// Packs square matrices [.., dim, dim].
inline amx::Panels packed_forms(const CpuContext& context, std::span<const float> matrices,
                                std::size_t dim) {
  const std::size_t count = matrices.size() / (dim * dim), size = packed_form_size(dim);
  amx::Panels packed(count * size);
  context.pool.parallel_for(count, [&](std::size_t i) {
    pack_form(matrices.data() + i * dim * dim, dim, packed.data() + i * size);
  });
  return packed;
}

// For amx::kBlock vectors along the lanes: multiplies the products of a matrix's columns with the
// vectors' channels of those columns, and adds up along the columns.
template <bool kLinear>
struct AddForms {
  const float* products = nullptr;         // [32 columns, amx::kBlock]
  const std::uint16_t* vectors = nullptr;  // the step of those channels in the first right panel
  std::size_t panel = 0;
  const float* linear = nullptr;  // [32 columns] if kLinear
  float* forms = nullptr;         // [amx::kBlock]
  PRECIS_INLINE void operator()(std::size_t piece) const {
    if (products == nullptr) return;
    constexpr std::size_t kPairs = amx::kPanel / amx::kPieces;
    Lanes low = load_lanes(forms), high = load_lanes(forms + kLanes);
    for (std::size_t pair = piece * kPairs; pair < (piece + 1) * kPairs; ++pair) {
      Words low_pair, high_pair;
      std::memcpy(&low_pair, vectors + pair * amx::kStep, sizeof low_pair);
      std::memcpy(&high_pair, vectors + panel + pair * amx::kStep, sizeof high_pair);
      const float* even = products + 2 * pair * amx::kBlock;
      const float* odd = even + amx::kBlock;
      const float along_even = kLinear ? linear[2 * pair] : 0.0f;
      const float along_odd = kLinear ? linear[2 * pair + 1] : 0.0f;
      low += plus<kLinear>(load_lanes(even), along_even) * (Lanes)(low_pair << 16);
      high += plus<kLinear>(load_lanes(even + kLanes), along_even) * (Lanes)(high_pair << 16);
      low += plus<kLinear>(load_lanes(odd), along_odd) * (Lanes)(low_pair & 0xffff0000u);
      high += plus<kLinear>(load_lanes(odd + kLanes), along_odd) * (Lanes)(high_pair & 0xffff0000u);
    }
    store_lanes(forms, low);
    store_lanes(forms + kLanes, high);
  }

  template <bool kAdd>
  PRECIS_INLINE static Lanes plus(Lanes x, float y) {
    if constexpr (kAdd) return x + y;
    return x;
  }
};

// Computes the forms of amx::kBlock vectors at a time.
class FormVectors {
 public:
  explicit FormVectors(std::size_t dim) : dim_(dim), packed_(2 * amx::panel_size(dim)) {}

  // `count` <= amx::kBlock rows of bf16 at `rows`.
  PRECIS_INLINE void load(const std::byte* rows, std::size_t count) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(rows);
    for (std::size_t t = 0; t < amx::kBlock; t += amx::kPanel) {
      const std::size_t left = count > t ? std::min(amx::kPanel, count - t) : 0;
      amx::pack_rows(from + t * dim_, dim_, left, dim_,
                     packed_.data() + t / amx::kPanel * amx::panel_size(dim_));
    }
  }

  // forms[g][t] = x_t^T M_g x_t, + linear_g . x_t if kLinear. `forms`: [count, amx::kBlock];
  // `matrices`: [count, packed_form_size()]; `linear`: [count, whole_tiles(dim, amx::kBlock)].
  // Meanwhile prefetches the vectors that will be loaded next, from `next_rows` on.
  template <bool kLinear>
  PRECIS_INLINE void forms(const std::uint16_t* matrices, const float* linear, std::size_t count,
                           const std::byte* next_rows, float* forms) const {
    const std::size_t panel = amx::panel_size(dim_), steps = amx::steps_of(dim_);
    const std::size_t width = whole_tiles(dim_, amx::kBlock);
    const amx::TwoParts parts{packed_form_size(dim_) / kFormParts};
    alignas(64) float products[2][amx::kBlock * amx::kBlock];
    std::fill(forms, forms + count * amx::kBlock, 0.0f);
    AddForms<kLinear> waiting;
    const std::size_t fetched_bytes = amx::kBlock * dim_ * 2 / (count * steps) + 1;
    for (std::size_t i = 0; i < count * steps; ++i) {
      const std::size_t g = i / steps, step = i % steps;
      float* next = products[i % 2];
      const std::byte* fetched = next_rows + i * fetched_bytes;
      for (std::size_t k = 0; k < fetched_bytes; k += 64) __builtin_prefetch(fetched + k, 0, 2);
      amx::multiply(matrices + g * packed_form_size(dim_) + 2 * step * panel, packed_.data(), panel,
                    step, steps, parts, next, waiting);
      waiting = {next, packed_.data() + step * amx::kTileSize, panel,
                 kLinear ? linear + g * width + step * amx::kBlock : nullptr,
                 forms + g * amx::kBlock};
    }
    for (std::size_t piece = 0; piece < amx::kPieces; ++piece) waiting(piece);
  }

 private:
  std::size_t dim_;
  amx::Panels packed_;  // two right panels
};

}  // namespace precis::kernels
