// Computes the logits of attention, a block of rows by a block of tokens at a time; one class for
// each way to multiply matrices. Only for loops that isa.h compiles.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/common/amx.h"
#include "kernels/common/exp2_lanes.h"
#include "kernels/common/lane_shuffles.h"
#include "kernels/score/attention/attention_op.h"
#include "kernels/score/tile.h"

namespace precis::kernels {

inline constexpr std::size_t kBlockRows = 32;    // rows of one product
inline constexpr std::size_t kBlockTokens = 32;  // tokens of one product
static_assert(kBlockRows == amx::kBlock && kBlockTokens == amx::kBlock);
static_assert(kBlockTokens == kTileTokens && kBlockRows % kTileRows == 0);
using Logits = float[kBlockRows * kBlockTokens];  // not scaled

// One KV head: its keys and the rows that observe it. Row r is query r / group of query head
// r % group of the group.
struct HeadTask {
  AttentionOp op;
  const std::byte* keys;
  Dtype dtype;
  std::size_t head_dim, num_rows;
  float exp_scale;                      // log2(e) / sqrt(head_dim)
  const float* queries;                 // [whole_tiles(num_rows, kBlockRows), head_dim], or null
  const std::uint16_t* packed_queries;  // the same rows as left panels (amx.h), or null
  const std::uint16_t* turned_queries;  // the same rows as right panels, or null
  // A row's weights are exp2(logit * exp_scale - reference) * share; read by pass 2.
  const float *reference, *share;  // [num_rows]
  const float* row_scale;          // [num_rows], or null: 1
  float* scores;                   // [columns]; written by pass 2
  float* mean;                     // [columns] or null
};

// Products by vectors, laid out [row][token]: keys are widened to f32 and transposed, so that
// tokens lie along the lanes.
class VectorProducts {
 public:
  static constexpr bool kTurned = false;
  explicit VectorProducts(const HeadTask& task) : task_(task), scratch_(task.head_dim) {}
  // f32 of one block of tokens.
  using Key = float;
  std::size_t block_size() const { return kBlockTokens * task_.head_dim; }

  PRECIS_INLINE void load(std::size_t token, std::size_t count, float* block) {
    const std::size_t row_bytes = task_.head_dim * dtype_size_bytes(task_.dtype);
    load_tile(task_.dtype, task_.keys + token * row_bytes, count, task_.head_dim, scratch_.data(),
              block);
  }
  template <typename Piece>
  PRECIS_INLINE void multiply(std::size_t row, const float* block, float* logits,
                              const Piece& piece) const {
    float products[kTileRows][kTileTokens];
    const std::size_t rows = std::min(kBlockRows, task_.num_rows - row);
    for (std::size_t r = 0; r < rows; r += kTileRows) {
      tile_products(task_.queries + (row + r) * task_.head_dim, block, task_.head_dim, products);
      std::memcpy(logits + r * kBlockTokens, products, sizeof products);
    }
    for (std::size_t i = 0; i < amx::kPieces; ++i) piece(i);
  }
  // A large number if the result exceeds an f32 or x is NaN.
  PRECIS_INLINE static Lanes exp2(Lanes x) { return exp2_lanes(at_most(126.0f, x)); }
  PRECIS_INLINE static Lanes at_most(float limit, Lanes x) { return smaller(Lanes{} + limit, x); }

 private:
  const HeadTask& task_;
  std::vector<float> scratch_;
};

// Products by tile registers, for bf16 queries and keys, laid out [row][token].
class TileProducts {
 public:
  static constexpr bool kTurned = false;
  explicit TileProducts(const HeadTask& task)
      : task_(task), panel_(amx::panel_size(task.head_dim)) {}
  // bf16 of one block of tokens, two right panels.
  using Key = std::uint16_t;
  std::size_t block_size() const { return 2 * panel_; }

  PRECIS_INLINE void load(std::size_t token, std::size_t count, std::uint16_t* block) {
    const auto* rows = reinterpret_cast<const std::uint16_t*>(task_.keys) + token * task_.head_dim;
    for (std::size_t t = 0; t < kBlockTokens; t += amx::kPanel) {
      const std::size_t left = count > t ? std::min(amx::kPanel, count - t) : 0;
      amx::pack_rows(rows + t * task_.head_dim, task_.head_dim, left, task_.head_dim,
                     block + t / amx::kPanel * panel_);
    }
  }
  template <typename Piece>
  PRECIS_INLINE void multiply(std::size_t row, const std::uint16_t* block, float* logits,
                              const Piece& piece) const {
    amx::multiply(task_.packed_queries + row / amx::kPanel * panel_, block, panel_, 0,
                  amx::steps_of(task_.head_dim), amx::NoParts{}, logits, piece);
  }
#if defined(__x86_64__) && !defined(__clang__)
  // Like exp2_lanes, but to 2^-18.5, with AVX-512's instructions for it: x minus its floor, and
  // scaling by two to the floor.
  PRECIS_INLINE static Lanes exp2(Lanes x) {
    Lanes r, scaled;
    asm("vreduceps $9, %1, %0" : "=v"(r) : "v"(x));
    // The polynomial of degree 4 with the least relative error on [0, 1]: 2^-18.5, less than the
    // error that f32 logits of size 40 cause in a weight.
    Lanes p = r * 1.3534168e-2f + 5.2011460e-2f;
    p = p * r + 2.4144275e-1f;
    p = p * r + 6.9300383e-1f;
    p = p * r + 1.0000026f;
    asm("vscalefps %2, %1, %0" : "=v"(scaled) : "v"(p), "v"(x));
    return scaled;
  }
  PRECIS_INLINE static Lanes at_most(float limit, Lanes x) {
    Lanes least;
    asm("vminps %2, %1, %0" : "=v"(least) : "v"(Lanes{} + limit), "v"(x));
    return least;
  }
#else
  PRECIS_INLINE static Lanes exp2(Lanes x) { return x; }
  PRECIS_INLINE static Lanes at_most(float, Lanes x) { return x; }
#endif

 private:
  const HeadTask& task_;
  std::size_t panel_;
  amx::TileScope tiles_;
};

// The same, laid out [token][row]: keys need not be transposed, and sums per row lie along the
// lanes.
class TurnedTileProducts {
 public:
  static constexpr bool kTurned = true;
  explicit TurnedTileProducts(const HeadTask& task)
      : task_(task), panel_(amx::panel_size(task.head_dim)) {}
  // bf16 of one block of tokens, two left panels.
  using Key = std::uint16_t;
  std::size_t block_size() const { return 2 * panel_; }

  PRECIS_INLINE void load(std::size_t token, std::size_t count, std::uint16_t* block) {
    const auto* rows = reinterpret_cast<const std::uint16_t*>(task_.keys) + token * task_.head_dim;
    for (std::size_t t = 0; t < kBlockTokens; t += amx::kPanel) {
      const std::size_t left = count > t ? std::min(amx::kPanel, count - t) : 0;
      amx::pack_left(rows + t * task_.head_dim, task_.head_dim, left, task_.head_dim,
                     block + t / amx::kPanel * panel_);
    }
  }
  template <typename Piece>
  PRECIS_INLINE void multiply(std::size_t row, const std::uint16_t* block, float* logits,
                              const Piece& piece) const {
    amx::multiply(block, task_.turned_queries + row / amx::kPanel * panel_, panel_, 0,
                  amx::steps_of(task_.head_dim), amx::NoParts{}, logits, piece);
  }
  PRECIS_INLINE static Lanes exp2(Lanes x) { return TileProducts::exp2(x); }

 private:
  const HeadTask& task_;
  std::size_t panel_;
  amx::TileScope tiles_;
};

}  // namespace precis::kernels
