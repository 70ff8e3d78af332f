// Matrix products of bf16 with f32 sums in the tile registers of x86 (Isa::kAmx). Only for loops
// that isa.h compiles, and only called on machines with kAmx. The instructions are inline assembly,
// so that no function needs a target attribute; each statement tells the compiler that it accesses
// memory.
//
// C[32, 32] = A[32, depth] B[depth, 32]. Both are packed into panels of 16 rows or columns, with 32
// elements of depth per step, and zeros past their ends:
//   left[step][row][32]            A[row][32 step ..]
//   right[step][pair][column][2]   B[32 step + 2 pair + {0, 1}][column]
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/common/aligned_array.h"
#include "kernels/common/lane_shuffles.h"

namespace precis::kernels::amx {

inline constexpr std::size_t kPanel = 16;  // rows or columns of one tile
inline constexpr std::size_t kBlock = 2 * kPanel;
inline constexpr std::size_t kStep = 32;                  // bf16 of depth of one tile
inline constexpr std::size_t kTileSize = kPanel * kStep;  // bf16

constexpr std::size_t steps_of(std::size_t depth) { return (depth + kStep - 1) / kStep; }
// bf16 of one packed panel.
constexpr std::size_t panel_size(std::size_t depth) { return steps_of(depth) * kTileSize; }

using Halves = std::uint16_t __attribute__((vector_size(32)));

#if defined(__x86_64__)

// Configures the tile registers on this thread for the lifetime of the object.
class TileScope {
 public:
  PRECIS_INLINE TileScope() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  }
  PRECIS_INLINE ~TileScope() { asm volatile("tilerelease" ::: "memory"); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

template <int kTile>
PRECIS_INLINE void zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <int kTile>
PRECIS_INLINE void load(const std::uint16_t* from) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(std::size_t{64}), "i"(kTile)
               : "memory");
}
template <int kTile>
PRECIS_INLINE void store(float* to) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(std::size_t{4 * kBlock}), "i"(kTile)
               : "memory");
}
template <int kSum, int kA, int kB>
PRECIS_INLINE void add_product() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
}

#else  // never called

class [[maybe_unused]] TileScope {
 public:
  TileScope() {}
};
template <int kTile>
void zero() {}
template <int kTile>
void load(const std::uint16_t*) {}
template <int kTile>
void store(float*) {}
template <int kSum, int kA, int kB>
void add_product() {}

#endif

// While multiply() computes a product, the caller processes the previous product in kPieces pieces:
// the tile unit and the vector units overlap only if their instructions are interleaved.
inline constexpr std::size_t kPieces = 4;  // of 8 rows each

struct NoParts {
  static constexpr int kCount = 1;
  std::size_t apart = 0;
};
struct TwoParts {  // A is the sum of two matrices, the second one `apart` bf16 behind the first
  static constexpr int kCount = 2;
  std::size_t apart;
};

// c[32][32], 64-byte aligned: the product over steps [first, last). `a` and `b`: two consecutive
// panels each, `panel` = panel_size(depth) bf16. `piece(i)` runs once for each i in [0, kPieces),
// spread over the steps.
template <typename Parts, typename Piece>
PRECIS_INLINE void multiply(const std::uint16_t* a, const std::uint16_t* b, std::size_t panel,
                            std::size_t first, std::size_t last, Parts parts, float* c,
                            const Piece& piece) {
  zero<0>();
  zero<1>();
  zero<2>();
  zero<3>();
  std::size_t done = 0;
  for (std::size_t s = first; s < last; ++s) {
    load<6>(b + s * kTileSize);
    load<7>(b + panel + s * kTileSize);
    for (int p = 0; p < Parts::kCount; ++p) {
      const std::uint16_t* rows = a + static_cast<std::size_t>(p) * parts.apart + s * kTileSize;
      load<4>(rows);
      load<5>(rows + panel);
      add_product<0, 4, 6>();
      add_product<1, 4, 7>();
      add_product<2, 5, 6>();
      add_product<3, 5, 7>();
    }
    for (; done * (last - first) < kPieces * (s + 1 - first); ++done) piece(done);
  }
  store<0>(c);
  store<1>(c + kPanel);
  store<2>(c + kPanel * kBlock);
  store<3>(c + kPanel * kBlock + kPanel);
}

using Panels = AlignedArray<std::uint16_t>;  // tiles are loaded by whole lines

// Packs the left panel of `count` <= 16 rows of `depth` elements.
PRECIS_INLINE void pack_left(const std::uint16_t* rows, std::size_t stride, std::size_t count,
                             std::size_t depth, std::uint16_t* panel) {
  const bool whole = count == kPanel && depth % kStep == 0;
  if (!whole) std::memset(panel, 0, panel_size(depth) * 2);
  for (std::size_t first = 0; first < depth; first += kStep) {
    const std::size_t width = depth - first < kStep ? depth - first : kStep;
    std::uint16_t* tile = panel + first / kStep * kTileSize;
    for (std::size_t r = 0; r < count; ++r) {
      if (width == kStep) std::memcpy(tile + r * kStep, rows + r * stride + first, 64);
      if (width < kStep) std::memcpy(tile + r * kStep, rows + r * stride + first, width * 2);
    }
  }
}

// Packs one tile of a right panel whose columns are rows of memory: `count` rows, `depth` elements
// from `first` on each.
PRECIS_INLINE void pack_tile(const std::uint16_t* rows, std::size_t stride, std::size_t count,
                             std::size_t depth, std::uint16_t* tile) {
  Words words[kPanel];
  if (count == kPanel && depth == kStep) {
    for (std::size_t r = 0; r < kPanel; ++r) std::memcpy(&words[r], rows + r * stride, 64);
  } else {
    std::memset(words, 0, sizeof words);
    for (std::size_t r = 0; r < count; ++r) std::memcpy(&words[r], rows + r * stride, depth * 2);
  }
  transpose(words);
  std::memcpy(tile, words, sizeof words);
}

// Packs the right panel whose columns are `count` <= 16 rows of `depth` elements.
PRECIS_INLINE void pack_rows(const std::uint16_t* rows, std::size_t stride, std::size_t count,
                             std::size_t depth, std::uint16_t* panel) {
  for (std::size_t first = 0; first < depth; first += kStep) {
    const std::size_t step = depth - first < kStep ? depth - first : kStep;
    pack_tile(rows + first, stride, count, step, panel + first / kStep * kTileSize);
  }
}

// Packs the right panel of `count` <= 16 columns of a matrix of `depth` rows.
PRECIS_INLINE void pack_columns(const std::uint16_t* matrix, std::size_t stride, std::size_t count,
                                std::size_t depth, std::uint16_t* panel) {
  const bool whole = count == kPanel && depth % kStep == 0;
  for (std::size_t pair = 0; pair < steps_of(depth) * kPanel; ++pair) {
    Halves even = {}, odd = {};
    const std::uint16_t* row = matrix + 2 * pair * stride;
    if (whole) {
      std::memcpy(&even, row, sizeof even);
      std::memcpy(&odd, row + stride, sizeof odd);
    } else {
      if (2 * pair < depth) std::memcpy(&even, row, count * 2);
      if (2 * pair + 1 < depth) std::memcpy(&odd, row + stride, count * 2);
    }
    const Words words = __builtin_convertvector(even, Words) | __builtin_convertvector(odd, Words)
                                                                   << 16;
    std::memcpy(panel + pair * kStep, &words, sizeof words);
  }
}

// The bf16 nearest to a finite x, ties to even.
PRECIS_INLINE std::uint16_t bf16_of_f32(float x) {
  const std::uint32_t bits = bits_of_f32(x);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

}  // namespace precis::kernels::amx
