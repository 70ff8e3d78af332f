// XXH3-128 by a block of threads, over five pieces of memory as if they were contiguous. Only for
// kernel sources.
#pragma once

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"
#include "kernels/encode/xxh3_long_op.h"

namespace precis::kernels {

// Three sections of `word_bytes`, one of `key_bytes`, and one of `value_bytes`.
struct SealInput {
  const std::byte* pieces[5];
  std::size_t word_bytes, key_bytes, value_bytes;

  __device__ std::size_t size() const { return 3 * word_bytes + key_bytes + value_bytes; }
  // The piece that holds byte `at`; `at` becomes the offset within that piece.
  __device__ std::uint32_t piece_of(std::size_t& at) const {
    for (std::uint32_t i = 0; i < 3; ++i) {
      if (at < word_bytes) return i;
      at -= word_bytes;
    }
    if (at < key_bytes) return 3;
    at -= key_bytes;
    return 4;
  }
  __device__ std::uint8_t u8(std::size_t at) const {
    const std::uint32_t piece = piece_of(at);
    return static_cast<std::uint8_t>(pieces[piece][at]);
  }
  __device__ std::uint32_t u32(std::size_t at) const {
    return static_cast<std::uint32_t>(bytes(at, 4));
  }
  __device__ std::uint64_t u64(std::size_t at) const { return bytes(at, 8); }
  __device__ std::uint64_t bytes(std::size_t at, std::uint32_t count) const {
    std::uint64_t word = 0;
    for (std::uint32_t i = 0; i < count; ++i) word |= std::uint64_t{u8(at + i)} << 8 * i;
    return word;
  }
  // 16 bytes, in one load if they are aligned within one piece, as in whole blocks of usual rows.
  __device__ void load_pair(std::size_t at, std::uint64_t& even, std::uint64_t& odd) const {
    std::size_t offset = at;
    const std::uint32_t piece = piece_of(offset);
    const std::byte* address = pieces[piece] + offset;
    const std::size_t size = piece < 3 ? word_bytes : piece == 3 ? key_bytes : value_bytes;
    const std::size_t left = size - offset;
    if (left >= sizeof(uint4) && reinterpret_cast<std::uintptr_t>(address) % sizeof(uint4) == 0) {
      const uint4 x = *reinterpret_cast<const uint4*>(address);
      even = x.x | std::uint64_t{x.y} << 32;
      odd = x.z | std::uint64_t{x.w} << 32;
      return;
    }
    even = u64(at);
    odd = u64(at + 8);
  }
};

struct SealShared {
  std::uint64_t blocks[kSealBlocks][xxh3::kSums];  // the sums that each block of the input adds
  std::uint64_t sums[xxh3::kSums];
};

// Writes the sums of all lanes of a warp that have the same 16 bytes of a stripe.
__device__ inline void sum_of_warp(std::uint64_t even, std::uint64_t odd, std::uint64_t* sums) {
  for (int step = 4; step < 32; step *= 2) {
    even += __shfl_xor_sync(kWholeWarp, even, step);
    odd += __shfl_xor_sync(kWholeWarp, odd, step);
  }
  const std::uint32_t lane = threadIdx.x % kWarp;
  if (lane >= 4) return;
  sums[2 * lane] = even;
  sums[2 * lane + 1] = odd;
}

// Adds shared.blocks to shared.sums. They are the sums of the input's `count` blocks from `first`
// on. `size`: of the whole input.
__device__ inline void fold_blocks(std::size_t first, std::size_t count, std::size_t size,
                                   SealShared& shared) {
  if (threadIdx.x >= xxh3::kSums) return;
  std::uint64_t sum = shared.sums[threadIdx.x];
  for (std::size_t i = 0; i < count; ++i) {
    sum += shared.blocks[i][threadIdx.x];
    if (xxh3::is_followed(first + i, size)) sum = xxh3::scrambled(sum, threadIdx.x);
  }
  shared.sums[threadIdx.x] = sum;
}

// One warp computes the sums that block `block` of the input adds. A lane takes 16 bytes of every
// eighth stripe; integer additions may happen in any order.
__device__ inline void add_block(const SealInput& in, std::size_t block, std::uint64_t* sums) {
  const std::uint32_t lane = threadIdx.x % kWarp, pair = lane % 4;
  const std::size_t stripes = (in.size() - 1) / xxh3::kStripeBytes;  // all except the last 64 bytes
  std::uint64_t even_sum = 0, odd_sum = 0;
  for (std::uint32_t i = lane / 4; i < xxh3::kBlockBytes / xxh3::kStripeBytes; i += 8) {
    const std::size_t stripe = block * (xxh3::kBlockBytes / xxh3::kStripeBytes) + i;
    if (stripe >= stripes) break;
    std::uint64_t even, odd;
    in.load_pair(stripe * xxh3::kStripeBytes + pair * 16, even, odd);
    xxh3::add_pair(even, odd, xxh3::secret_word(i + 2 * pair), xxh3::secret_word(i + 2 * pair + 1),
                   even_sum, odd_sum);
  }
  sum_of_warp(even_sum, odd_sum, sums);
}

// The hash of all pieces of `in`. Every thread of the block must call it; the first thread gets the
// result.
__device__ inline xxh3::Hash128 seal(const SealInput& in, SealShared& shared) {
  const std::size_t size = in.size();
  if (size <= xxh3::kShortBytesMax)
    return threadIdx.x == 0 ? xxh3::hash_short(in, size) : xxh3::Hash128{};
  const std::size_t blocks = (size - 1) / xxh3::kBlockBytes + 1;
  if (threadIdx.x < xxh3::kSums) shared.sums[threadIdx.x] = xxh3::first_sum(threadIdx.x);
  for (std::size_t first = 0; first < blocks; first += kSealBlocks) {
    const std::size_t count = min(blocks - first, std::size_t{kSealBlocks});
    for (std::size_t i = threadIdx.x / kWarp; i < count; i += blockDim.x / kWarp) {
      add_block(in, first + i, shared.blocks[i]);
    }
    __syncthreads();
    fold_blocks(first, count, size, shared);
    __syncthreads();
  }
  if (threadIdx.x != 0) return {};
  xxh3::add_stripe(in, size - xxh3::kStripeBytes, xxh3::kLastStripeKey, shared.sums);
  return xxh3::finished(shared.sums, size);
}

}  // namespace precis::kernels
