// Long paths are hashed on another thread, in pieces that take turns; short paths on the loop.
#include "cachesvc/pipeline/path_hasher.h"
#include "cachesvc/base/asio_loop.h"
#include "cachesvc/base/thread_executor.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <future>
#include <random>

#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::uint32_t kBlockTokens = 64;
constexpr std::size_t kPieces = 12;
constexpr std::size_t kLong = kPieces * PathHasher::kPieceTokens;

std::vector<TokenId> random_path(std::uint32_t seed, std::size_t size) {
  std::mt19937 random(seed);
  std::vector<TokenId> path(size);
  for (TokenId& token : path) token = random();
  return path;
}

struct Hashing {
  AsioLoop loop;
  PathHasher hasher{loop, std::make_unique<ThreadExecutor>("paths", 1), 1};
  DigestRoom room{loop};
  const Digest root = path_root("t", "", Digest{}, "");

  Task<void> hash(std::vector<TokenId> tokens, std::optional<std::vector<Digest>>& blocks,
                  bool then_stop = false) {
    blocks.emplace(co_await hasher.with(Owner{"t"}, root, std::move(tokens), kBlockTokens,
                                        [](const TokenPath& path) { return path.blocks; }));
    if (then_stop) loop.stop();
  }
};

}  // namespace

TEST_CASE("a short path is hashed at once, a long one in pieces beside the loop",
          "[unit][pipeline]") {
  Hashing h;
  const auto long_path = random_path(1, kLong + 7), short_path = random_path(2, 1000);
  std::optional<std::vector<Digest>> of_long, of_short;
  spawn(h.hash(long_path, of_long, /*then_stop=*/true));
  spawn(h.hash(short_path, of_short));
  CHECK_FALSE(of_long);  // the loop has not run since
  REQUIRE(of_short);
  CHECK(*of_short == block_digests(h.root, short_path, kBlockTokens));
  h.loop.run();
  REQUIRE(of_long);
  CHECK(*of_long == block_digests(h.root, long_path, kBlockTokens));
  CHECK(h.hasher.turns().pieces() == kPieces);
}

TEST_CASE("the loop hashes at most half a millisecond of a path, and learns it",
          "[unit][pipeline]") {
  Hashing h;
  const auto path = random_path(3, PathHasher::kHereTokensMax);
  std::size_t rounds = 0;
  for (; rounds < 100; ++rounds) {
    const std::uint64_t pieces = h.hasher.turns().pieces();
    std::optional<std::vector<Digest>> blocks;
    spawn(h.hash(path, blocks, /*then_stop=*/true));
    const bool at_once = blocks.has_value();
    h.loop.run();
    REQUIRE(blocks);
    REQUIRE(*blocks == block_digests(h.root, path, kBlockTokens));
    CHECK((h.hasher.turns().pieces() == pieces) == at_once);
    if (at_once) break;
  }
  CHECK(rounds >= PathHasher::kHereTokensMax / PathHasher::kHereHashedMax - 1);
  CHECK(rounds < 100);
}

TEST_CASE("digests of paths in small blocks take a bounded memory, and all paths are hashed",
          "[unit][pipeline]") {
  Hashing h;
  const auto path = random_path(4, limits::kPathBlocksMax);
  constexpr std::size_t kFit = limits::kDigestBytesMax / (limits::kPathBlocksMax * sizeof(Digest)),
                        kPaths = kFit + 3;
  std::optional<std::vector<Digest>> blocks[kPaths];
  std::size_t left = kPaths;
  const auto hash = [&](std::optional<std::vector<Digest>>& into) -> Task<void> {
    into.emplace(co_await h.hasher.with(Owner{"t"}, h.root, path, 1,
                                        [](const TokenPath& hashed) { return hashed.blocks; }));
    CHECK(h.hasher.room().taken_bytes() <= limits::kDigestBytesMax);
    if (--left == 0) h.loop.stop();
  };
  for (auto& each : blocks) spawn(hash(each));
  CHECK(h.hasher.room().waiting() == kPaths - kFit);
  CHECK(h.hasher.room().taken_bytes() == limits::kDigestBytesMax);
  h.loop.run();
  CHECK(h.hasher.room().waiting() == 0);
  const auto expected = block_digests(h.root, path, 1);
  for (const auto& each : blocks) CHECK(each == expected);
  // The size of a message bounds paths with larger blocks.
  h.loop.post([&] {
    spawn([](Hashing& hashing) -> Task<void> {
      CHECK_FALSE(co_await hashing.room.enter(1u << 24, DigestRoom::kBlockTokens, Owner{"t"}));
      hashing.loop.stop();
    }(h));
  });
  h.loop.run();
}

TEST_CASE("pieces of a tenant's long paths wait for another tenant's", "[unit][pipeline]") {
  std::string order;  // written by one thread only
  FairExecutor executor(std::make_unique<ThreadExecutor>("pieces", 1));
  const int connections[101] = {};
  std::promise<void> all_posted, all_done;
  executor.post({"gate", 1, nullptr}, [&] {
    all_posted.get_future().wait();
    return false;
  });
  int left = 101;
  const auto job = [&](char name) {
    return [&, name, pieces = 0]() mutable {
      order += name;
      if (++pieces < 10) return true;
      if (--left == 0) all_done.set_value();
      return false;
    };
  };
  for (int i = 0; i < 100; ++i) executor.post({"many", 1, &connections[i]}, job('m'));
  executor.post({"one", 1, &connections[100]}, job('o'));
  all_posted.set_value();
  all_done.get_future().wait();
  CHECK(order.size() == 1010);
  // The ten pieces of tenant "one" are among the first 21 pieces, and not behind 1,000 others.
  CHECK(std::ranges::count(order.substr(0, 21), 'o') == 10);
}

}  // namespace precis
