// Remembered digests equal computed ones, whatever was hashed before.
#include "cachesvc/pipeline/path_digests.h"

#include <catch2/catch.hpp>
#include <random>

namespace precis {
namespace {

std::vector<TokenId> random_path(std::mt19937& random, std::size_t size) {
  std::vector<TokenId> path(size);
  for (TokenId& token : path) token = random() % 3;  // so that many blocks are equal
  return path;
}

TokenPath hash(PathDigests& paths, const Digest& root, std::span<const TokenId> tokens,
               std::uint32_t block_tokens) {
  TokenPath path{root, tokens, block_tokens, {}};
  while (!paths.extend(path, tokens.size(), tokens.size())) {
  }
  return path;
}

}  // namespace

TEST_CASE("remembered digests are the hashed ones, of paths that share and part",
          "[unit][pipeline]") {
  std::mt19937 random(7);
  PathDigests paths{1};
  const Digest roots[] = {path_root("a", "", Digest{}, ""), path_root("b", "", Digest{}, "")};
  std::vector<TokenId> last = random_path(random, 40);
  for (int round = 0; round < 2000; ++round) {
    // A turn continues from some earlier point of the path.
    last.resize(random() % (last.size() + 1));
    const auto more = random_path(random, random() % 30);
    last.insert(last.end(), more.begin(), more.end());
    const Digest& root = roots[random() % 2];
    const std::uint32_t block_tokens = 1 + random() % 5;
    const TokenPath path = hash(paths, root, last, block_tokens);
    REQUIRE(path.blocks == block_digests(root, last, block_tokens));
    const std::size_t end = random() % (last.size() + 1);
    REQUIRE(path.tip(end) == path_tip(root, std::span(last).first(end), block_tokens));
  }
}

TEST_CASE("a path's next turn hashes what is new of it", "[unit][pipeline]") {
  std::mt19937 random(9);
  PathDigests paths{1};
  const Digest root = path_root("a", "", Digest{}, "");
  auto path = random_path(random, 64 * 64);
  hash(paths, root, path, 64);
  CHECK(paths.hashed() == 64);
  path.resize(66 * 64, TokenId{7});
  hash(paths, root, path, 64);
  // Few of 66 blocks collide in 16,384 places.
  CHECK(paths.hashed() >= 66);
  CHECK(paths.hashed() <= 66 + 8);
}

TEST_CASE("digests are right when there were more than are remembered", "[unit][pipeline]") {
  std::mt19937 random(8);
  PathDigests paths{1};
  const Digest root = path_root("a", "", Digest{}, "");
  const auto first = random_path(random, 100'000);
  for (const std::uint32_t block_tokens : {1u, 4u, 64u, 65u, 4096u}) {
    const auto other = random_path(random, 100'000);
    REQUIRE(hash(paths, root, other, block_tokens).blocks ==
            block_digests(root, other, block_tokens));
    REQUIRE(hash(paths, root, first, block_tokens).blocks ==
            block_digests(root, first, block_tokens));
  }
  CHECK(hash(paths, root, {}, 4).blocks.empty());
}

}  // namespace precis
