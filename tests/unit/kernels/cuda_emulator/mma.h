// The product of a tensor core from the words of a warp's lanes (kernels/common/mma.cuh gives the
// place of each element).
#pragma once

#include <cstdint>

namespace precis::cuda_emulator {

void multiply_add_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);

}  // namespace precis::cuda_emulator
