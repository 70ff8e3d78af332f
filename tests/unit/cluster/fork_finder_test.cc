#include "cachesvc/cluster/fork_finder.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

namespace precis::cluster {
namespace {

using Paths = std::vector<std::vector<std::uint64_t>>;

// `count` paths of `blocks` blocks that are alike in the first `alike`. Names of blocks are unique
// below `from`.
Paths paths(std::size_t count, std::size_t alike, std::size_t blocks, std::uint64_t from = 0) {
  Paths made(count);
  for (std::size_t p = 0; p < count; ++p) {
    for (std::size_t k = 0; k < blocks; ++k) {
      made[p].push_back(from + (k < alike ? k : 1000 * (p + 1) + k));
    }
  }
  return made;
}
Paths both(Paths a, const Paths& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Digest named(std::uint64_t name) {
  Digest digest;
  std::memcpy(digest.bytes.data(), &name, sizeof name);
  return digest;
}
ForkFinder::Blocks blocks_of(const std::vector<std::uint64_t>& path) {
  return [&path](std::size_t count) {
    std::vector<Digest> digests;
    for (std::size_t k = 0; k < std::min(count, path.size()); ++k) {
      digests.push_back(named(path[k]));
    }
    return digests;
  };
}

constexpr std::uint64_t kMillion = 1'000'000;

TEST_CASE("a fork leads to the block at which the paths divide") {
  CHECK(fork_depth(paths(32, 1, 3)) == 2);
  CHECK(fork_depth(paths(32, 20, 30)) == 21);
  CHECK(fork_depth(paths(32, 0, 3)) == 1);
  // Where half of them divide, though the rest go on alike.
  CHECK(fork_depth(both(paths(16, 5, 50), paths(16, 40, 50, kMillion))) == 6);
}

TEST_CASE("paths that do not divide have no fork") {
  CHECK_FALSE(fork_depth(paths(32, 50, 50)));  // one prompt again and again
  CHECK_FALSE(fork_depth(both(paths(16, 50, 50), paths(16, 50, 50, kMillion))));  // two prompts
  CHECK_FALSE(fork_depth(both(paths(28, 50, 50), paths(4, 2, 50))));
  CHECK_FALSE(fork_depth(both(paths(20, 3, 3), paths(12, 3, 50))));  // most end before they divide
  CHECK_FALSE(fork_depth(paths(32, ForkFinder::kBlocksMax, ForkFinder::kBlocksMax + 5)));
}

TEST_CASE("the block that most puts begin with is found, and no other") {
  ForkFinder finder(1);
  const Digest prompt = named(0);
  std::vector<std::uint32_t> found;
  for (std::uint64_t put = 0; put < 2000; ++put) {
    const std::vector<std::uint64_t> path = {0, 1, 2, 1000 + put};
    if (const auto blocks = finder.add(500, prompt, blocks_of(path))) found.push_back(*blocks);
    const std::vector<std::uint64_t> other = {kMillion + put, 2 * kMillion + put};
    CHECK_FALSE(finder.add(100, named(kMillion + put), blocks_of(other)));
  }
  REQUIRE_FALSE(found.empty());
  for (const std::uint32_t blocks : found) CHECK(blocks == 4);
}

TEST_CASE("a block with a small share of the tokens is left alone") {
  ForkFinder finder(1);
  for (std::uint64_t put = 0; put < 20'000; ++put) {
    const bool shared = put % 64 == 0;  // half a kShare
    const std::uint64_t first = shared ? 0 : put;
    const std::vector<std::uint64_t> path = {first, kMillion + put};
    CHECK_FALSE(finder.add(100, named(first), blocks_of(path)));
  }
}

TEST_CASE("what became popular lately is found among millions of older puts") {
  ForkFinder finder(1);
  std::uint64_t put = 1;
  for (; put < 1'500'000; ++put) {
    const std::vector<std::uint64_t> path = {put % 3000 + 1, kMillion + put};
    finder.add(100, named(path[0]), blocks_of(path));
  }
  bool found = false;
  for (int more = 0; more < 200'000 && !found; ++more, ++put) {
    const std::uint64_t first = put % 4 == 0 ? 0 : put % 3000 + 1;
    const std::vector<std::uint64_t> path = {first, 100 * kMillion + put};
    found = finder.add(100, named(first), blocks_of(path)).has_value() && first == 0;
  }
  CHECK(found);
}

}  // namespace
}  // namespace precis::cluster
