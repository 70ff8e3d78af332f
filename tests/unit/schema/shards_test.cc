#include "precis/shards.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>

#include "precis/block_digest.h"

namespace precis {
namespace {

Digest named(std::uint8_t name) {
  Digest digest;
  digest.bytes.fill(name);
  return digest;
}

// The name of the deciding block of a path whose blocks have these names.
std::uint8_t decides(const std::vector<std::uint8_t>& path, const Forks& forks) {
  const auto block = [&](std::size_t k) { return named(path.at(k)); };
  return deciding_block(path.size(), block, forks).bytes[0];
}

// The path 1, 2, 3 and so on.
std::uint8_t decides(std::uint8_t blocks, const Forks& forks) {
  std::vector<std::uint8_t> path(blocks);
  std::iota(path.begin(), path.end(), 1);
  return decides(path, forks);
}

TEST_CASE("the first block decides the shard of a path, however long it grows") {
  for (const std::uint8_t blocks : {1, 2, 200}) CHECK(decides(blocks, {}) == 1);
}

TEST_CASE("beneath a fork, a deeper block decides") {
  const Forks forks = {{named(1), 4}, {named(4), 6}};
  CHECK(decides(3, forks) == 1);  // it ends before the fork divides
  CHECK(decides(4, forks) == 4);
  CHECK(decides(5, forks) == 4);
  CHECK(decides(6, forks) == 6);
  CHECK(decides(9, forks) == 6);
  CHECK(decides({1, 2, 3, 9, 5, 6}, forks) == 9);  // it leaves the path of the second fork
}

TEST_CASE("a fork that does not lead deeper is ignored") {
  CHECK(decides(3, {{named(1), 0}}) == 1);
  CHECK(decides(3, {{named(1), 1}}) == 1);
  CHECK(decides(3, {{named(1), 2}, {named(2), 1}}) == 2);
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

const Digest kSpace = shard_space("red", "salt"), kModel = named(1);

std::vector<TokenId> tokens_up_to(TokenId end) {
  std::vector<TokenId> tokens(end);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST_CASE("a path's shard follows from the tenant, the model, the adapter and the deciding block") {
  const auto tokens = tokens_up_to(40);
  const auto shard = [&](const Digest& space, const Digest& model, const std::string& adapter,
                         std::size_t count, const Forks& forks = {}) {
    return shard_of(deciding_block(shard_root(space, model, adapter),
                                   std::span(tokens).first(count), 16, forks));
  };
  const std::uint32_t first = shard(kSpace, kModel, "", 16);
  CHECK(shard(kSpace, kModel, "", 40) == first);
  CHECK(shard(kSpace, kModel, "", 15) == shard(kSpace, kModel, "", 1));  // the root's
  CHECK(shard(kSpace, kModel, "", 15) != first);
  CHECK(shard(shard_space("blue", "salt"), kModel, "", 16) != first);
  CHECK(shard(shard_space("red", "other"), kModel, "", 16) != first);
  CHECK(shard(kSpace, named(2), "", 16) != first);
  CHECK(shard(kSpace, kModel, "lora", 16) != first);

  const auto digests = block_digests(shard_root(kSpace, kModel, ""), tokens, 16);
  CHECK(first == shard_of(digests[0]));
  CHECK(shard(kSpace, kModel, "", 31, {{digests[0], 2}}) == first);
  CHECK(shard(kSpace, kModel, "", 32, {{digests[0], 2}}) == shard_of(digests[1]));
}

TEST_CASE("sessions whose names have the same part in braces are in one shard") {
  const auto shard = [](const char* name) { return shard_of_session(kSpace, name); };
  CHECK(shard("chat-7") != shard("chat-8"));
  CHECK(shard("{chat-7}") == shard("chat-7"));
  CHECK(shard("{chat-7}/b") == shard("chat-7"));
  CHECK(shard("a{chat-7}{chat-8}") == shard("chat-7"));
  for (const char* whole : {"{}a", "{a", "a}", "}a{"}) CHECK(shard(whole) != shard("a"));
  CHECK(shard_of_session(shard_space("blue", ""), "chat-7") != shard("chat-7"));
}

}  // namespace
}  // namespace precis
