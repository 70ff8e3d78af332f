#include "kernels/check/check_cuda.h"

#include "kernels/common/device_code.cuh"
#include "kernels/common/tuning.h"

namespace precis::kernels {
namespace {

// A value that is not finite has every exponent bit set. `mask`: the exponent bits of each element
// in a word.
__device__ bool any_not_finite(std::uint32_t word, std::uint32_t mask, bool halves) {
  if (!halves) return (word & mask) == mask;
  return (word & mask & 0xffffu) == (mask & 0xffffu) ||
         (word & mask & ~0xffffu) == (mask & ~0xffffu);
}

// 16 bytes a thread in each step of the grid; the remaining words are read one by one.
__global__ void find_not_finite(const std::uint32_t* words, std::uint64_t num_words,
                                std::uint32_t mask, bool halves, std::uint32_t* found) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  bool bad = false;
  std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; 4 * i + 3 < num_words; i += stride) {
    const uint4 w = reinterpret_cast<const uint4*>(words)[i];
    bad = bad || any_not_finite(w.x, mask, halves) || any_not_finite(w.y, mask, halves) ||
          any_not_finite(w.z, mask, halves) || any_not_finite(w.w, mask, halves);
  }
  for (std::uint64_t k = 4 * i; k < num_words; ++k) {
    bad = bad || any_not_finite(words[k], mask, halves);
  }
  if (bad) *found = 1;  // all writers store the same value
}

// Checks the last element if the number of 16-bit elements is odd.
__global__ void look_at_last(const std::uint16_t* element, std::uint32_t mask,
                             std::uint32_t* found) {
  if ((*element & mask & 0xffffu) == (mask & 0xffffu)) *found = 1;
}

}  // namespace

Status launch_find_not_finite(Dtype dtype, const void* rows, std::uint64_t count,
                              std::uint32_t* found, Stream& stream) {
  const bool halves = dtype != Dtype::kF32;
  const std::uint32_t mask = dtype == Dtype::kF32    ? kF32ExponentBits
                             : dtype == Dtype::kBf16 ? kBf16ExponentBits * 0x10001u
                                                     : kF16ExponentBits * 0x10001u;
  const std::uint64_t num_words = halves ? count / 2 : count;
  const std::uint32_t blocks =
      std::min(ceil_div(num_words, 4 * kElementwiseThreads), kCheckBlocksMax);
  PRECIS_TRY(launch("check: finite", find_not_finite, blocks, kElementwiseThreads, 0, stream,
                    static_cast<const std::uint32_t*>(rows), num_words, mask, halves, found));
  if (!halves || count % 2 == 0) return {};
  return launch("check: last element", look_at_last, 1, 1, 0, stream,
                static_cast<const std::uint16_t*>(rows) + count - 1, mask, found);
}

}  // namespace precis::kernels
