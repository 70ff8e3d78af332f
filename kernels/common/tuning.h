// Launch sizes of the CUDA stages. Chosen by arithmetic, not yet measured per architecture.
#pragma once

#include <cstddef>
#include <cstdint>

namespace precis::kernels {

// The backend: the number of layers on the device at a time, from any segments and requests, each
// on its own stream. Copies of one layer overlap with the compression of others, and several short
// segments together keep the device busy. Between layers the process keeps device memory: K and V
// of 32K tokens of 8 heads with 128 channels take 128 MiB.
inline constexpr unsigned kCompressors = 8;
inline constexpr std::size_t kDeviceMemoryKept = std::size_t{2} << 30;

// window_attention: a block of threads holds one tile of keys in shared memory as f32, and
// multiplies it with every row of its KV head. 32 tokens are one warp; 32 x 256 x 4 B = 32 KiB,
// below the 48 KiB that every device allows by default; for larger heads a tile has fewer tokens.
inline constexpr std::uint32_t kWindowTileBytesMax = 32 * 1024;
inline constexpr std::uint32_t kWindowTileTokensMax = 32;
inline constexpr std::uint32_t kWindowRowsPerBlock = 8;  // warps side by side
// A block computes the softmaxes of this many rows, one span of tiles after another.
inline constexpr std::uint32_t kWindowRowsOfBlock = 128;
inline constexpr std::uint32_t kElementwiseThreads = 256;

// check: a few blocks for each multiprocessor of a device; more blocks only add start-up cost.
inline constexpr std::uint32_t kCheckBlocksMax = 2048;

// keydiff: the tokens whose unit keys one block sums.
inline constexpr std::uint32_t kKeyChunkTokens = 256;
// kvdiff: the tokens between two rotations of the coarse table. The fine table covers the tokens
// within such a block. So both tables are small: 8 B per pair for each of their tokens.
inline constexpr std::uint32_t kTurnBlockTokens = 64;

// expected_attention: the tokens of a softmax that one block takes, 16 a thread.
inline constexpr std::uint32_t kExpectedChunkTokens = 4096;

// Value norms without tensor cores: tokens whose products one thread holds.
inline constexpr std::uint32_t kPlainTokens = 8;

// encode: a block copies and hashes the 64 entries of a checksum: 33 KiB at 128 channels of two
// bytes, so 9 warps take up to 4 KiB each at once, 8 loads of 16 bytes a thread. The least number
// of blocks on a multiprocessor bounds the registers, so that a third of its warps are active. The
// hash's partial sums take 64 B per KiB hashed.
inline constexpr std::uint32_t kEncodeThreads = 288;
inline constexpr std::uint32_t kEncodeBlocks = 3;
inline constexpr std::uint32_t kCopyBlocks = 4;  // KiB of a warp at once
inline constexpr std::uint32_t kSealBlocks = 64;

// select: a block sorts one tile of a head's tokens. 16 warps with 256 counts each take 16 KiB of
// shared memory, and the tile twice 24 KiB. At 32K tokens, 8 heads have 128 tiles, about one for
// each multiprocessor of a large device; smaller tiles would have more to merge.
inline constexpr std::uint32_t kSelectThreads = 512;
inline constexpr std::uint32_t kSelectTile = 2048;
// While one thread walks along two orders, the others fetch this many tokens of each at once.
inline constexpr std::uint32_t kMergeThreads = 256;

// The tokens that one block's walk takes. A walk of n tokens begins after a count of those before
// it, which all threads share.
inline constexpr std::uint32_t kMergePart = 128;

// allocate: rounds that a warp walks. A warp begins with a search that reads a few hundred scores
// one after the other; a round of 8 heads reads 8, and costs 8 exchanges of the warp.
inline constexpr std::uint32_t kContestRounds = 4;
inline constexpr std::uint32_t kContestThreads = 128;

// pages: rows of keys or of values that a block moves; at 128 channels of two bytes, 4 pieces of 16
// bytes a thread.
inline constexpr std::uint32_t kMoveRowsOfBlock = 64;
inline constexpr std::uint32_t kMoveThreads = 256;

}  // namespace precis::kernels
