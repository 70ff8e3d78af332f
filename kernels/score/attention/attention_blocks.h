// Computes every logit of a range of rows and tokens once, a block at a time, and passes each block
// to a consumer. Only for loops that isa.h compiles.
#pragma once

#include "kernels/common/aligned_array.h"
#include "kernels/score/attention/attention_products.h"

namespace precis::kernels {

// The tokens whose packed keys are kept while all rows are multiplied with them: 16 KiB at a
// head_dim of 128, so that the keys, a block of rows and two blocks of logits stay in the first
// cache levels.
inline constexpr std::uint32_t kSpanBlocks = 2;
inline constexpr std::uint32_t kSpanTokens = kSpanBlocks * kBlockTokens;
// The rows that are multiplied with a span at once; limits the memory that is held per row.
inline constexpr std::size_t kRowsAtOnce = 512;

struct Range {
  std::size_t first, last;  // [first, last)
};

// Uses the previous block of logits while the next one is computed, and prefetches keys, a few with
// each piece: a burst of prefetches would stall the core until memory answers.
template <typename Use>
struct Waiting {
  const Use& use;
  const std::byte* keys;
  std::size_t fetched_bytes = 0;  // per piece
  const float* logits = nullptr;
  std::size_t row = 0, token = 0;
  PRECIS_INLINE void operator()(std::size_t piece) const {
    const std::byte* from = keys + piece * fetched_bytes;
    for (std::size_t i = 0; i < fetched_bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
    if (logits != nullptr) use(logits, row, token, piece);
  }
};

// Sets the logits of tokens that a row does not see, and of tokens past the range, to -infinity.
inline void mask(const HeadTask& task, std::size_t row, std::size_t token, std::size_t last,
                 float* logits) {
  for (std::size_t r = 0; r < std::min(kBlockRows, task.num_rows - row); ++r) {
    const std::size_t visible = std::min<std::size_t>(
        last, task.op.visible(static_cast<std::uint32_t>((row + r) / task.op.group)));
    const std::size_t seen = visible > token ? std::min(kBlockTokens, visible - token) : 0;
    std::fill(logits + r * kBlockTokens + seen, logits + (r + 1) * kBlockTokens,
              -std::numeric_limits<float>::infinity());
  }
}

inline void mask_turned(const HeadTask& task, std::size_t row, std::size_t token, std::size_t last,
                        float* logits) {
  for (std::size_t r = 0; r < std::min(kBlockRows, task.num_rows - row); ++r) {
    const std::size_t visible = std::min<std::size_t>(
        last, task.op.visible(static_cast<std::uint32_t>((row + r) / task.op.group)));
    for (std::size_t t = visible > token ? visible - token : 0; t < kBlockTokens; ++t) {
      logits[t * kBlockRows + r] = -std::numeric_limits<float>::infinity();
    }
  }
}

// Calls use(logits, row, token, piece) for every block from (rows.first, tokens.first) on, and for
// every piece of it: 8 rows, or 8 tokens if the products are transposed (kTurned). rows.first must
// be a multiple of kBlockRows; logits in rows after the last row are undefined.
template <typename Products, typename Use>
PRECIS_INLINE void for_blocks(const HeadTask& task, Range rows, Range tokens, const Use& use) {
  Products products(task);
  const std::size_t block_size = products.block_size();
  AlignedArray<typename Products::Key> keys(kSpanBlocks * block_size);
  alignas(64) Logits logits[2] = {};
  Waiting<Use> waiting{use, task.keys};
  const std::size_t row_bytes = task.head_dim * dtype_size_bytes(task.dtype);
  const std::size_t row_blocks = (rows.last - rows.first + kBlockRows - 1) / kBlockRows;
  const std::size_t ahead = kBlockTokens * row_bytes / (row_blocks * amx::kPieces) + 1;
  for (std::size_t span = tokens.first; span < tokens.last; span += kSpanTokens) {
    const std::size_t end = std::min<std::size_t>(span + kSpanTokens, tokens.last);
    for (std::size_t t = span; t < end; t += kBlockTokens) {
      products.load(t, std::min(kBlockTokens, end - t),
                    keys.data() + (t - span) / kBlockTokens * block_size);
    }
    waiting.keys = task.keys + end * row_bytes;
    waiting.fetched_bytes = end < tokens.last ? ahead : 0;
    for (std::size_t row = rows.first; row < rows.last; row += kBlockRows) {
      for (std::size_t t = span; t < end; t += kBlockTokens) {
        float* next = logits[waiting.logits == logits[0]];
        products.multiply(row, keys.data() + (t - span) / kBlockTokens * block_size, next, waiting);
        if (t + kBlockTokens > std::min<std::size_t>(task.op.visible(0), tokens.last)) {
          Products::kTurned ? mask_turned(task, row, t, tokens.last, next)
                            : mask(task, row, t, tokens.last, next);
        }
        waiting.logits = next;
        waiting.row = row;
        waiting.token = t;
        waiting.keys += amx::kPieces * waiting.fetched_bytes;
      }
    }
  }
  for (std::size_t piece = 0; piece < amx::kPieces; ++piece) waiting(piece);
}

inline constexpr std::size_t kPieceRows = kBlockRows / amx::kPieces;

// The largest scaled logit of each row, lane by lane.
struct FindLargest {
  float scale;
  std::size_t first_row;
  float* largest;  // [rows from first_row on, kLanes]
  PRECIS_INLINE void operator()(const float* logits, std::size_t row, std::size_t,
                                std::size_t piece) const {
    for (std::size_t r = piece * kPieceRows; r < (piece + 1) * kPieceRows; ++r) {
      const Lanes a = load_lanes(logits + r * kBlockTokens) * scale;
      const Lanes b = load_lanes(logits + r * kBlockTokens + kLanes) * scale;
      float* best = largest + (row - first_row + r) * kLanes;
      store_lanes(best, larger(b, larger(a, load_lanes(best))));
    }
  }
};

// Sums of exp2(scaled logit - reference) of each row, lane by lane.
struct SumExps {
  float scale;
  std::size_t first_row;
  const float* reference;  // [rows from first_row on]
  float* sums;             // [the same, kLanes]
  PRECIS_INLINE void operator()(const float* logits, std::size_t row, std::size_t,
                                std::size_t piece) const {
    const float* of_block = reference + (row - first_row);
    float* out = sums + (row - first_row) * kLanes;
    for (std::size_t r = piece * kPieceRows; r < (piece + 1) * kPieceRows; ++r) {
      const Lanes a = load_lanes(logits + r * kBlockTokens) * scale - of_block[r];
      const Lanes b = load_lanes(logits + r * kBlockTokens + kLanes) * scale - of_block[r];
      const Lanes sum = VectorProducts::exp2(a) + VectorProducts::exp2(b);
      store_lanes(out + r * kLanes, load_lanes(out + r * kLanes) + sum);
    }
  }
};

// The same two reductions of transposed products, where rows lie along the lanes.
struct FindLargestTurned {
  float scale;
  std::size_t first_row;
  float* largest;  // [rows from first_row on]
  PRECIS_INLINE void operator()(const float* logits, std::size_t row, std::size_t,
                                std::size_t piece) const {
    for (std::size_t half = 0; half < kBlockRows; half += kLanes) {
      float* out = largest + (row - first_row) + half;
      Lanes best = load_lanes(out);
      for (std::size_t t = piece * kPieceRows; t < (piece + 1) * kPieceRows; ++t) {
        const Lanes x = load_lanes(logits + t * kBlockRows + half) * scale;
        best = x > best ? x : best;
      }
      store_lanes(out, best);
    }
  }
};
struct SumExpsTurned {
  float scale;
  std::size_t first_row;
  const float* reference;  // [rows from first_row on]
  float* sums;             // [the same]
  PRECIS_INLINE void operator()(const float* logits, std::size_t row, std::size_t,
                                std::size_t piece) const {
    const std::size_t at = row - first_row;
    const Lanes low = load_lanes(reference + at), high = load_lanes(reference + at + kLanes);
    Lanes low_sum = load_lanes(sums + at), high_sum = load_lanes(sums + at + kLanes);
    for (std::size_t t = piece * kPieceRows; t < (piece + 1) * kPieceRows; ++t) {
      const float* of_token = logits + t * kBlockRows;
      low_sum += TurnedTileProducts::exp2(load_lanes(of_token) * scale - low);
      high_sum += TurnedTileProducts::exp2(load_lanes(of_token + kLanes) * scale - high);
    }
    store_lanes(sums + at, low_sum);
    store_lanes(sums + at + kLanes, high_sum);
  }
};

// The two forms of pass 1: lanes along tokens, or lanes along rows.
struct AlongTokens {
  using Products = VectorProducts;
  using Largest = FindLargest;
  using Sums = SumExps;
  static constexpr std::size_t kPerRow = kLanes;
};
struct AlongRows {
  using Products = TurnedTileProducts;
  using Largest = FindLargestTurned;
  using Sums = SumExpsTurned;
  static constexpr std::size_t kPerRow = 1;
};

}  // namespace precis::kernels
