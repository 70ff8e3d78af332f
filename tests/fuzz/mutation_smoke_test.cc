// Runs the fuzz targets without libFuzzer: valid inputs, damaged at random from a printed seed.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "tests/fuzz/targets.h"

namespace precis::fuzz {
namespace {

using Input = std::vector<std::byte>;
using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t bound) { return random() % bound; }

// Overwrites bytes with values that are often wrong for lengths, offsets and pointers.
template <typename T>
void overwrite(Random& random, Input& input) {
  if (input.size() < sizeof(T)) return;
  const T values[] = {0, 1, static_cast<T>(-1), static_cast<T>(T{1} << (sizeof(T) * 8 - 1)),
                      static_cast<T>(random())};
  const T value = values[below(random, std::size(values))];
  std::memcpy(input.data() + below(random, input.size() - sizeof(T) + 1), &value, sizeof(T));
}

// Cap'n Proto messages have whole words, so most pieces of other lengths would be refused for their
// length alone.
std::size_t cut(Random& random, std::size_t size) {
  return below(random, 8) == 0 ? size : size / 8 * 8;
}

void mutate(Random& random, Input& input) {
  if (input.empty()) return;
  const std::size_t begin = cut(random, below(random, input.size()));
  const std::size_t length = std::min(cut(random, 8 + below(random, 32)), input.size() - begin);
  const auto at = input.begin() + static_cast<std::ptrdiff_t>(begin);
  switch (below(random, 8)) {
    case 0:
    case 1:
      input[below(random, input.size())] ^= static_cast<std::byte>(1 << below(random, 8));
      break;
    case 2: overwrite<std::uint8_t>(random, input); break;
    case 3: overwrite<std::uint32_t>(random, input); break;
    case 4: overwrite<std::uint64_t>(random, input); break;
    case 5: input.erase(at, at + static_cast<std::ptrdiff_t>(length)); break;
    case 6: {
      const Input piece(at, at + static_cast<std::ptrdiff_t>(length));
      const auto to = static_cast<std::ptrdiff_t>(cut(random, below(random, input.size())));
      input.insert(input.begin() + to, piece.begin(), piece.end());
      break;
    }
    case 7: input.resize(begin); break;
  }
}

TEST_CASE("no damaged input makes a decoder crash, or accept what it cannot write", "[fuzz]") {
  constexpr int kRounds = 6000;  // well under a second per target, longer under a sanitizer
  const std::uint64_t seed = GENERATE(1u, 2u);
  for (const Target& target : targets()) {
    CAPTURE(target.name, seed);
    Random random(seed);
    const std::vector<Input> seeds = target.seeds(seed);
    for (const Input& input : seeds) CHECK(target.run(input));
    for (int round = 0; round < kRounds; ++round) {
      Input input = seeds[below(random, seeds.size())];
      for (std::size_t n = 1 + below(random, 6); n > 0; --n) mutate(random, input);
      target.run(input);
    }
  }
}

TEST_CASE("every target has a name of its own, and seeds", "[fuzz]") {
  for (const Target& target : targets()) {
    CAPTURE(target.name);
    CHECK(find_target(target.name) == &target);
    CHECK_FALSE(target.seeds(1).empty());
  }
  CHECK(find_target("no such target") == nullptr);
}

}  // namespace
}  // namespace precis::fuzz
