#include "tests/unit/kernels/cuda_emulator/mma.h"

#include <bit>
#include <cstring>

#include "tests/unit/kernels/cuda_emulator/grid.h"

namespace precis::cuda_emulator {
namespace {

constexpr std::uint32_t kAll = 0xffffffffu;

// Shows two words to the warp and collects those of every lane.
void gather_words(std::uint32_t low, std::uint32_t high, std::uint64_t (&words)[kWarpLanes]) {
  std::memcpy(words, exchange("mma.sync", kAll, low | std::uint64_t{high} << 32), sizeof words);
}

// The bf16 element in half `half` of word `word`. `words` has two words.
float element(std::uint64_t words, std::uint32_t word, std::uint32_t half) {
  const auto bits = static_cast<std::uint32_t>(words >> (32 * word + 16 * half)) << 16;
  return std::bit_cast<float>(bits);
}

}  // namespace

void multiply_add_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  std::uint64_t a_low[kWarpLanes], a_high[kWarpLanes], of_b[kWarpLanes];
  gather_words(a[0], a[1], a_low);
  gather_words(a[2], a[3], a_high);
  gather_words(b[0], b[1], of_b);
  const std::uint32_t group = lane() / 4, first = lane() % 4 * 2;
  float rows[2][16], columns[2][16];  // the factors of this lane's four sums
  for (std::uint32_t k = 0; k < 16; ++k) {
    const std::uint32_t place = k % 8 / 2;
    for (std::uint32_t i = 0; i < 2; ++i) {
      rows[i][k] = element((k < 8 ? a_low : a_high)[group * 4 + place], i, k % 2);
      columns[i][k] = element(of_b[(first + i) * 4 + place], k / 8, k % 2);
    }
  }
  for (std::uint32_t k = 0; k < 16; ++k) {
    for (std::uint32_t i = 0; i < 4; ++i) d[i] += rows[i / 2][k] * columns[i % 2][k];
  }
}

}  // namespace precis::cuda_emulator
