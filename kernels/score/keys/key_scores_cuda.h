// The CUDA implementations of knorm, keydiff, kvdiff and of values' L1 norms: launchers and
// workspaces. Includes no CUDA header.
#pragma once

#include <cstdint>

#include "kernels/common/device.h"
#include "precis/types.h"

namespace precis::kernels {

// Device pointers; rows packed, aligned to 16 bytes.
struct HeadRowsDevice {
  const void* rows;  // [num_heads, num_tokens, head_dim] of dtype
  std::uint32_t num_heads, num_tokens, head_dim;
  Dtype dtype;
};

// All of these enqueue on `stream`, and neither allocate nor wait. Results agree with the CPU's
// within the rounding of their sums (tests/unit/kernels/gpu_key_scores_test.cc states the bounds),
// and repeat bit for bit. out: [num_heads, num_tokens] f32 on the device.
Status launch_knorm(const HeadRowsDevice& keys, float* out, Stream& stream);     // -||k||_2
Status launch_l1_norms(const HeadRowsDevice& rows, float* out, Stream& stream);  // |v||_1

// One row of f32 per 256 tokens, and one per head.
std::size_t keydiff_workspace_bytes(const HeadRowsDevice& keys);
// -cos(k, mean of unit keys)
Status launch_keydiff(const HeadRowsDevice& keys, void* workspace, float* out, Stream& stream);

// The rotations ("turns") of a key's pairs by RoPE (rope.h): a token's rotation is that of its
// block followed by that of its step within the block. Device pointers.
struct TurnsDevice {
  std::uint32_t pairs = 0;  // the pairs of a key that RoPE rotates
  std::uint32_t block_tokens = 1;
  const float* blocks =
      nullptr;  // [blocks, 2 * pairs], cosines then sines, of a block's first token
  const float* steps = nullptr;  // [block_tokens, 2 * pairs]
};

// The workspace of keydiff, and one f32 per token and head.
std::size_t kvdiff_workspace_bytes(const HeadRowsDevice& keys);
// (1 - cos(k, mean of unit keys)) x ||v|| / the head's mean ||v||, for keys without their RoPE
Status launch_kvdiff(const HeadRowsDevice& keys, const HeadRowsDevice& values,
                     const TurnsDevice& turns, void* workspace, float* out, Stream& stream);

}  // namespace precis::kernels
