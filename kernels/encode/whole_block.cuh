// compact and hash in one pass, for a whole checksum block whose rows are raw and pieces of 16
// bytes: a piece is loaded once, stored to the record, and added to the hash while it is in
// registers. A warp has the loads of several KiB in flight. Only for kernel sources.
#pragma once

#include "kernels/compact/compact.cuh"
#include "kernels/encode/seal.cuh"
#include "precis/record_format.h"

namespace precis::kernels {

struct WholeShared : SealShared {
  std::uint32_t tokens[kChecksumBlockEntries];
  std::uint64_t last[xxh3::kSums];  // the last stripe, which is added under another key
};

// The entries of a task as the hash's input, in pieces of 16 bytes.
class WholeBlock {
 public:
  static constexpr std::uint32_t kPieceBytes = sizeof(uint4);
  static constexpr std::uint32_t kStripePieces = xxh3::kStripeBytes / kPieceBytes;

  __device__ static bool fits(const GatherTask& task) {
    return task.last - task.first == kChecksumBlockEntries && task.row_bytes % kPieceBytes == 0 &&
           task.form.encoding == Encoding::kRaw && task.seats != nullptr;
  }
  __device__ WholeBlock(const GatherTask& task, const Sections& out, const std::uint32_t* tokens)
      : task_(task),
        out_(out),
        tokens_(tokens),
        row_pieces_(static_cast<std::uint32_t>(task.row_bytes / kPieceBytes)) {}

  __device__ std::uint32_t pieces() const {
    return 3 * kWordPieces + 2 * kChecksumBlockEntries * row_pieces_;
  }
  __device__ uint4 load(std::uint32_t piece) const {
    if (piece < 3 * kWordPieces) return words(piece);
    std::uint32_t at = piece - 3 * kWordPieces;
    const bool is_key = at < kChecksumBlockEntries * row_pieces_;
    if (!is_key) at -= kChecksumBlockEntries * row_pieces_;
    const std::byte* row =
        (is_key ? task_.keys : task_.values) + tokens_[at / row_pieces_] * task_.row_bytes;
    return reinterpret_cast<const uint4*>(row)[at % row_pieces_];
  }
  __device__ void store(std::uint32_t piece, const uint4& x) const {
    const std::uint32_t section = piece / kWordPieces;
    std::uint32_t at = piece;
    std::byte* to;
    if (section < 3) {
      std::uint32_t* all = section == 0   ? out_.positions
                           : section == 1 ? out_.seats
                                          : reinterpret_cast<std::uint32_t*>(out_.scores);
      to = reinterpret_cast<std::byte*>(all + task_.first);
      at %= kWordPieces;
    } else {
      at -= 3 * kWordPieces;
      const bool is_key = at < kChecksumBlockEntries * row_pieces_;
      if (!is_key) at -= kChecksumBlockEntries * row_pieces_;
      to = (is_key ? out_.keys : out_.values) + task_.first * task_.row_bytes;
    }
    reinterpret_cast<uint4*>(to)[at] = x;
  }

 private:
  static constexpr std::uint32_t kWordPieces = kChecksumBlockEntries * 4 / kPieceBytes;

  // Four positions, seats or scores.
  __device__ uint4 words(std::uint32_t piece) const {
    const std::uint32_t section = piece / kWordPieces, at = piece % kWordPieces * 4;
    std::uint32_t x[4];
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t token = tokens_[at + i];
      x[i] = section == 0   ? task_.begin + token
             : section == 1 ? task_.seats[task_.first + at + i]
                            : bits_of_f32(task_.scores[token]);
    }
    return {x[0], x[1], x[2], x[3]};
  }

  const GatherTask& task_;
  const Sections& out_;
  const std::uint32_t* tokens_;
  std::uint32_t row_pieces_;
};

// Writes the entries of `task`, which must fit WholeBlock, and returns their hash in the first
// thread. Every thread of the block must call it.
__device__ inline xxh3::Hash128 copy_and_seal(const GatherTask& task, const Sections& out,
                                              WholeShared& s) {
  for (std::uint32_t i = threadIdx.x; i < kChecksumBlockEntries; i += blockDim.x) {
    s.tokens[i] = task.kept[task.first + i];
  }
  if (threadIdx.x < xxh3::kSums) s.sums[threadIdx.x] = xxh3::first_sum(threadIdx.x);
  __syncthreads();
  const WholeBlock whole(task, out, s.tokens);
  const std::uint32_t pieces = whole.pieces(), stripes = pieces / WholeBlock::kStripePieces;
  const std::uint32_t lane = threadIdx.x % kWarp, pair = lane % WholeBlock::kStripePieces;
  const std::uint32_t warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  // A lane takes 16 bytes of two stripes of each of the hash's blocks.
  constexpr std::uint32_t kBlockPieces = xxh3::kBlockBytes / WholeBlock::kPieceBytes;
  static_assert(kBlockPieces == 2 * kWarp);
  std::uint64_t keys[2][2];
#pragma unroll
  for (std::uint32_t i = 0; i < 4; ++i) {
    keys[i / 2][i % 2] = xxh3::secret_word(lane / 4 + i / 2 * 8 + 2 * pair + i % 2);
  }
  const std::uint32_t blocks = (pieces + kBlockPieces - 1) / kBlockPieces;
  for (std::uint32_t first = 0; first < blocks; first += kSealBlocks) {
    const std::uint32_t count = min(blocks - first, static_cast<std::uint32_t>(kSealBlocks));
    for (std::uint32_t block = warp; block < count; block += kCopyBlocks * warps) {
      uint4 data[kCopyBlocks * 2];
      const auto piece_of = [&](std::uint32_t i) {
        return (first + block + i / 2 * warps) * kBlockPieces + i % 2 * kWarp + lane;
      };
#pragma unroll
      for (std::uint32_t i = 0; i < 2 * kCopyBlocks; ++i) {
        if (block + i / 2 * warps < count && piece_of(i) < pieces) {
          data[i] = whole.load(piece_of(i));
        }
      }
#pragma unroll
      for (std::uint32_t b = 0; b < kCopyBlocks; ++b) {
        if (block + b * warps >= count) break;
        std::uint64_t even_sum = 0, odd_sum = 0;
#pragma unroll
        for (std::uint32_t i = 2 * b; i < 2 * b + 2; ++i) {
          const std::uint32_t piece = piece_of(i);
          if (piece >= pieces) continue;
          whole.store(piece, data[i]);
          const std::uint64_t even = data[i].x | std::uint64_t{data[i].y} << 32;
          const std::uint64_t odd = data[i].z | std::uint64_t{data[i].w} << 32;
          if (piece / WholeBlock::kStripePieces == stripes - 1) {
            s.last[2 * pair] = even;
            s.last[2 * pair + 1] = odd;
          } else {
            xxh3::add_pair(even, odd, keys[i % 2][0], keys[i % 2][1], even_sum, odd_sum);
          }
        }
        sum_of_warp(even_sum, odd_sum, s.blocks[block + b * warps]);
      }
    }
    __syncthreads();
    fold_blocks(first, count, std::size_t{pieces} * WholeBlock::kPieceBytes, s);
    __syncthreads();
  }
  if (threadIdx.x != 0) return {};
#pragma unroll
  for (std::uint32_t i = 0; i < xxh3::kSums; i += 2) {
    xxh3::add_pair(s.last[i], s.last[i + 1], xxh3::secret(xxh3::kLastStripeKey + i * 8),
                   xxh3::secret(xxh3::kLastStripeKey + i * 8 + 8), s.sums[i], s.sums[i + 1]);
  }
  return xxh3::finished(s.sums, std::size_t{pieces} * WholeBlock::kPieceBytes);
}

}  // namespace precis::kernels
