#include "cachesvc/cluster/fork_finder.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

namespace precis::cluster {
namespace {

using Paths = std::vector<std::vector<std::uint64_t>>;

// `count` paths of `blocks` blocks that are alike in the first `alike`. No block's name is below
// `from`.
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
std::optional<std::uint32_t> add(ForkFinder& finder, std::uint64_t tokens,
                                 const std::vector<std::uint64_t>& path,
                                 std::uint32_t writers = 1) {
  const auto blocks = [&](std::size_t count) {
    std::vector<Digest> digests;
    for (std::size_t k = 0; k < std::min(count, path.size()); ++k) {
      digests.push_back(named(path[k]));
    }
    return digests;
  };
  return finder.add({tokens, writers, named(path.front()), blocks});
}

constexpr std::uint64_t kMillion = 1'000'000;

TEST_CASE("a fork leads to the block at which the paths divide") {
  CHECK(fork_depth(paths(32, 1, 3)) == 2);
  CHECK(fork_depth(paths(32, 20, 30)) == 21);
  CHECK(fork_depth(paths(32, 0, 3)) == 1);
  // Half of the paths divide at block 6, although the others divide later.
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
  std::vector<std::uint32_t> found;
  for (std::uint64_t put = 0; put < 2000; ++put) {
    const std::vector<std::uint64_t> path = {0, 1, 2, 1000 + put};
    if (const auto blocks = add(finder, 500, path)) found.push_back(*blocks);
    const std::vector<std::uint64_t> other = {kMillion + put, 2 * kMillion + put};
    CHECK_FALSE(add(finder, 100, other));
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
    CHECK_FALSE(add(finder, 100, path));
  }
}

TEST_CASE("of a put with several writers, one counts") {
  ForkFinder finder(1);
  std::vector<std::uint32_t> found;
  for (std::uint64_t put = 0; put < 4000; ++put) {
    for (int writer = 0; writer < 8; ++writer) {
      if (const auto blocks = add(finder, 500, {0, 1, 1000 + put}, 8)) found.push_back(*blocks);
    }
  }
  REQUIRE_FALSE(found.empty());
  for (const std::uint32_t blocks : found) CHECK(blocks == 3);
}

TEST_CASE("what became popular lately is found among millions of older puts") {
  ForkFinder finder(1);
  std::uint64_t put = 1;
  for (; put < 1'500'000; ++put) {
    const std::vector<std::uint64_t> path = {put % 3000 + 1, kMillion + put};
    add(finder, 100, path);
  }
  bool found = false;
  for (int more = 0; more < 200'000 && !found; ++more, ++put) {
    const std::uint64_t first = put % 4 == 0 ? 0 : put % 3000 + 1;
    const std::vector<std::uint64_t> path = {first, 100 * kMillion + put};
    found = add(finder, 100, path).has_value() && first == 0;
  }
  CHECK(found);
}

}  // namespace
}  // namespace precis::cluster
