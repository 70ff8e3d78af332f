#include "precis/shards.h"

#include <catch2/catch.hpp>
#include <random>

#include "precis/block_digest.h"

namespace precis {
namespace {

Digest named(std::uint8_t name) {
  Digest digest;
  digest.bytes.fill(name);
  return digest;
}

std::vector<Digest> path(std::uint8_t blocks) {
  std::vector<Digest> digests;
  for (std::uint8_t k = 1; k <= blocks; ++k) digests.push_back(named(k));
  return digests;
}

TEST_CASE("the first block decides the shard of a path, however long it grows") {
  for (const std::uint8_t blocks : {1, 2, 200}) CHECK(deciding_block(path(blocks), {}) == 0);
}

TEST_CASE("beneath a fork, a deeper block decides") {
  const Forks forks = {{named(1), 4}, {named(4), 6}};
  CHECK(deciding_block(path(3), forks) == 0);  // it ends before the fork divides
  CHECK(deciding_block(path(4), forks) == 3);
  CHECK(deciding_block(path(5), forks) == 3);
  CHECK(deciding_block(path(6), forks) == 5);
  CHECK(deciding_block(path(9), forks) == 5);
  const std::vector<Digest> other = {named(1), named(2), named(3), named(9), named(5), named(6)};
  CHECK(deciding_block(other, forks) == 3);  // it leaves the path of the second fork
}

TEST_CASE("a fork that does not lead deeper is ignored") {
  CHECK(deciding_block(path(3), {{named(1), 0}}) == 0);
  CHECK(deciding_block(path(3), {{named(1), 1}}) == 0);
  CHECK(deciding_block(path(3), {{named(1), 2}, {named(2), 1}}) == 1);
}

TEST_CASE("shards are used evenly") {
  std::vector<std::uint32_t> used(kShards);
  const TokenId token = 7;
  Digest digest = named(0);
  for (std::uint32_t n = 0; n < 16 * kShards; ++n) {
    digest = block_digest(digest, {&token, 1});
    ++used.at(shard_of(digest));
  }
  // 16 each on average, with a standard deviation of 4.
  for (const std::uint32_t count : used) CHECK((count > 0 && count < 16 + 8 * 4));
}

TEST_CASE("the shard is the first eight bytes of the digest, little endian, modulo their number") {
  Digest digest;
  digest.bytes[0] = 3;
  digest.bytes[1] = 1;
  digest.bytes[8] = 99;
  CHECK(shard_of(digest) == 259);
  digest.bytes[7] = 0x80;
  CHECK(shard_of(digest) == 259);  // 2^63 is a multiple of kShards
}

}  // namespace
}  // namespace precis
