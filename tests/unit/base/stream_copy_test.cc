#include "cachesvc/base/stream_copy.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace precis {
namespace {

TEST_CASE("a streaming copy moves exactly its bytes, wherever they begin and end", "[base]") {
  const std::size_t size = GENERATE(0u, 1u, 63u, 64u, 65u, 127u, 128u, 200u, 4096u, 16383u, 16384u,
                                    16385u, (1u << 16) + 77u);
  const std::size_t into = GENERATE(0u, 1u, 48u, 63u);
  const std::size_t out_of = GENERATE(0u, 7u, 32u);
  CAPTURE(size, into, out_of);
  std::mt19937_64 random(size + into);
  std::vector<std::byte> from(size + 300), to(size + 300);
  for (auto& b : from) b = static_cast<std::byte>(random());
  for (auto& b : to) b = static_cast<std::byte>(random());
  auto expected = to;
  for (std::size_t i = 0; i < size; ++i) expected[into + i] = from[out_of + i];
  stream_copy(to.data() + into, from.data() + out_of, size);
  CHECK((to == expected));
}

}  // namespace
}  // namespace precis
