// Compares our XXH3 with xxHash's.
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "kernels/encode/xxh3_long_op.h"
#include "tests/unit/kernels/layer_fixture.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace precis::kernels;
using namespace precis::kernels::test;

namespace {

struct Memory {
  const unsigned char* data;
  template <typename T>
  T word(std::size_t at) const {
    T x;
    std::memcpy(&x, data + at, sizeof x);
    return x;
  }
  std::uint8_t u8(std::size_t at) const { return data[at]; }
  std::uint32_t u32(std::size_t at) const { return word<std::uint32_t>(at); }
  std::uint64_t u64(std::size_t at) const { return word<std::uint64_t>(at); }
};

}  // namespace

TEST_CASE("XXH3-128 of every length equals xxHash's", "[kernels][xxh3]") {
  const std::uint64_t seed = test_seed();
  INFO("PRECIS_TEST_SEED=" << seed);
  Rng rng(seed);
  std::vector<std::size_t> sizes(2200);
  std::iota(sizes.begin(), sizes.end(), std::size_t{0});
  for (int i = 0; i < 200; ++i) sizes.push_back(pick(rng, 2200, 200'000));
  for (const std::size_t blocks : {4u, 33u, 128u}) {
    for (const std::size_t off : {0u, 1u, 63u, 64u, 65u}) sizes.push_back(blocks * 1024 - 64 + off);
  }
  for (const std::size_t size : sizes) {
    std::vector<unsigned char> bytes(size);
    for (auto& b : bytes) b = static_cast<unsigned char>(rng());
    const Memory memory{bytes.data()};
    const xxh3::Hash128 got = xxh3::hash(memory, size);
    const XXH128_hash_t expected = XXH3_128bits(bytes.data(), size);
    CAPTURE(size);
    REQUIRE(got.low == expected.low64);
    REQUIRE(got.high == expected.high64);
    if (size < 17 || size > 128) continue;
    REQUIRE(xxh3::hash64_medium(memory, size) == XXH3_64bits(bytes.data(), size));
  }
}
