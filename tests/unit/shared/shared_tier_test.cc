// The contract of SharedTier with the tier in memory, and the bytes that other tiers store.
#include <catch2/catch.hpp>
#include <random>

#include "cachesvc/shared/rados_keys.h"
#include "cachesvc/shared/shard_marks.h"
#include "tests/unit/shared/memory_tier.h"
#include "tests/unit/shared/shared_tier_contract.h"

using namespace precis;
using precis::testing::bytes_of;
using precis::testing::MemoryTier;

TEST_CASE("the shared tier in memory keeps the contract", "[unit][shared]") {
  for (const auto& contract : precis::testing::shared_tier_contract()) {
    DYNAMIC_SECTION(contract.name) {
      MemoryTier tier;
      contract.run(tier);
    }
  }
}

TEST_CASE("the shared tier in memory fails as it is told", "[unit][shared]") {
  MemoryTier tier;
  const ShardMark mark{1, 0, false, "node", "instance"};
  REQUIRE(tier.change_marks({{{5, {}, mark}}}).ok());
  tier.fail(true);
  CHECK(tier.marks({{5}}).status().code() == StatusCode::kUnavailable);
  CHECK(tier.write(5, mark, {{{"k", {}}}, {}}).code() == StatusCode::kUnavailable);
  tier.fail(false);
  tier.lose_answers(true);
  CHECK(tier.write(5, mark, {{{"k", {}}}, {}}).code() == StatusCode::kUnavailable);
  tier.lose_answers(false);
  CHECK(tier.write(5, mark, {{{"k", {}}}, {}}).ok());
  CHECK(tier.marks({{5}}).value().front()->sequence == 1);
  tier.fill(true);
  CHECK(tier.write_object("o", bytes_of("x")).code() == StatusCode::kOutOfSpace);
  CHECK(tier.objects() == 0);
  CHECK(tier.calls() == 7);
}

TEST_CASE("a mark comes back from its bytes", "[unit][shared]") {
  const ShardMark marks[] = {
      {},
      {1, 2, true, "node", "instance"},
      {1ull << 62, ~0ull, false, std::string(300, 'n'), std::string("\0", 1)}};
  for (const ShardMark& mark : marks) {
    const auto bytes = encode(mark);
    CHECK_FALSE(bytes.empty());
    CHECK(decode_mark(bytes).value() == mark);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      CHECK(decode_mark(Bytes(bytes).first(size)).status().code() == StatusCode::kCorruption);
    }
    auto longer = bytes;
    longer.push_back({});
    CHECK(decode_mark(longer).status().code() == StatusCode::kCorruption);
  }
}

TEST_CASE("bytes that are no mark are kCorruption", "[unit][shared]") {
  // The epoch after this one could not be told from the first.
  CHECK(decode_mark(encode(ShardMark{~0ull, 1, false, "", ""})).status().code() ==
        StatusCode::kCorruption);
  std::mt19937_64 random(7);
  const auto valid = encode({3, 4, true, "a-node", "an-instance"});
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes = valid;
    if (i % 2 == 0) {
      bytes.assign(random() % 64, {});
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      if (!bytes.empty() && i % 4 == 0) bytes.front() = std::byte{1};
    } else {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    const auto mark = decode_mark(bytes);
    if (mark.ok()) {
      CHECK(encode(*mark) == bytes);
    } else {
      CHECK(mark.status().code() == StatusCode::kCorruption);
    }
  }
}

TEST_CASE("keys in Ceph have no zeros, keep their order and come back", "[unit][shared]") {
  std::mt19937_64 random(8);
  std::string before;
  for (int i = 0; i < 20'000; ++i) {
    std::string key(random() % 6, '\0');
    for (char& byte : key) byte = static_cast<char>(random() % 2 == 0 ? random() % 4 : random());
    const std::string text = rados::without_zeros(key);
    CHECK(text.find('\0') == std::string::npos);
    CHECK(rados::with_zeros(text) == key);
    CHECK((text < rados::without_zeros(before)) == (key < before));
    const auto any = rados::with_zeros(key);
    if (any) CHECK(rados::without_zeros(*any) == key);
    before = key;
  }
  CHECK(rados::mark_key(0xbeef) == "ebeef");
  CHECK(rados::row_prefix(5) == "r0005");
  CHECK(rados::piece_name("a", 0) == "object.a");
  CHECK(rados::piece_name("a", 2) == "object.a:2");
  CHECK(rados::piece_in("object.a-1")->object == "a-1");
  CHECK(rados::piece_in("object.a-1")->number == 0);
  CHECK(rados::piece_in("object.a:12")->object == "a");
  CHECK(rados::piece_in("object.a:12")->number == 12);
  for (const std::string other : {"common", "rows.3", "object.a:0", "object.a:", "object.a:1x",
                                  "object.a:01", "object.a:1:2", "object.a:99999999999999999999"}) {
    CAPTURE(other);
    CHECK_FALSE(rados::piece_in(other));
  }
}
