// The hot tier: leases, order of eviction, limits.
#include "cachesvc/store/hot_tier.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/store/lru_policy.h"

using namespace precis;
using precis::testing::make_lru_policy;

namespace {

const std::size_t kPage = Arena::taken_bytes(1);  // a layer takes whole pages

SegmentId segment(std::uint8_t n) {
  SegmentId id;
  id.bytes[0] = n;
  id.bytes[15] = 1;
  return id;
}

struct Fixture {
  explicit Fixture(std::size_t limit = 256 * kPage, std::size_t arena_bytes = 1024 * kPage)
      : arena(Arena::create(arena_bytes).value()), tier(limit, make_lru_policy) {}

  HotTier::Lease insert(std::uint8_t n, std::uint32_t layer, std::size_t size,
                        std::byte fill = std::byte{0}) {
    auto buffer = arena->allocate(size).value();
    std::ranges::fill(buffer->bytes(), fill);
    return tier.insert(tenant, segment(n), layer, nullptr, std::move(buffer));
  }

  std::unique_ptr<Arena> arena;
  std::string tenant;  // of what is inserted
  HotTier tier;
};

}  // namespace

TEST_CASE("a layer put into the tier is found under its segment and layer alone",
          "[unit][hot_tier]") {
  Fixture f;
  f.insert(1, 2, 100, std::byte{42});
  const auto lease = f.tier.find(segment(1), 2, nullptr);
  REQUIRE(lease);
  CHECK(lease->bytes().size() == 100);
  CHECK(lease->bytes()[99] == std::byte{42});
  CHECK_FALSE(f.tier.find(segment(1), 1, nullptr));
  CHECK_FALSE(f.tier.find(segment(2), 2, nullptr));
  CHECK(f.tier.contains(segment(1), 2, nullptr));
  CHECK_FALSE(f.tier.contains(segment(2), 2, nullptr));
}

TEST_CASE("what is of another row is not found, and gives way to what is of the present one",
          "[unit][hot_tier]") {
  Fixture f;
  const HotTier::RowIdentity before = std::make_shared<int>(), now = std::make_shared<int>();
  const auto insert = [&](const HotTier::RowIdentity& row, std::byte fill) {
    auto buffer = f.arena->allocate(100).value();
    std::ranges::fill(buffer->bytes(), fill);
    return f.tier.insert("", segment(1), 0, row, std::move(buffer));
  };
  const auto lease = insert(before, std::byte{1});
  CHECK_FALSE(f.tier.find(segment(1), 0, now));
  CHECK_FALSE(f.tier.contains(segment(1), 0, now));
  CHECK(insert(now, std::byte{2})->bytes()[0] == std::byte{2});
  CHECK(insert(now, std::byte{3})->bytes()[0] == std::byte{2});
  CHECK_FALSE(f.tier.find(segment(1), 0, before));
  CHECK(f.tier.find(segment(1), 0, now)->bytes()[0] == std::byte{2});
  CHECK(lease->bytes()[0] == std::byte{1});  // its reader can continue
  CHECK(f.tier.stats().entries == 1);
  CHECK(f.tier.stats().bytes == 2 * kPage);
}

TEST_CASE("finds are counted as hits and misses, contains is not", "[unit][hot_tier]") {
  Fixture f;
  f.insert(1, 0, 100);
  (void)f.tier.find(segment(1), 0, nullptr);
  (void)f.tier.find(segment(1), 0, nullptr);
  (void)f.tier.find(segment(9), 0, nullptr);
  (void)f.tier.contains(segment(9), 0, nullptr);
  const HotTierStats stats = f.tier.stats();
  CHECK(stats.hits == 2);
  CHECK(stats.misses == 1);
  CHECK(stats.entries == 1);
  CHECK(stats.bytes == kPage);
  CHECK(stats.limit_bytes == 256 * kPage);
}

TEST_CASE("past its limit the tier evicts what was used longest ago", "[unit][hot_tier]") {
  Fixture f(4 * kPage);
  for (std::uint8_t n = 0; n < 4; ++n) f.insert(n, 0, kPage);
  (void)f.tier.find(segment(0), 0, nullptr);      // counts as use
  (void)f.tier.contains(segment(1), 0, nullptr);  // does not count as use
  f.insert(4, 0, kPage);
  CHECK_FALSE(f.tier.contains(segment(1), 0, nullptr));
  CHECK(f.tier.contains(segment(0), 0, nullptr));
  f.insert(5, 0, 2 * kPage);
  CHECK_FALSE(f.tier.contains(segment(2), 0, nullptr));
  CHECK_FALSE(f.tier.contains(segment(3), 0, nullptr));
  CHECK(f.tier.contains(segment(0), 0, nullptr));
  CHECK(f.tier.stats().evictions == 3);
  CHECK(f.tier.stats().bytes == 4 * kPage);
}

TEST_CASE("an entry exactly at the limit is kept, one byte more is served but not kept",
          "[unit][hot_tier]") {
  Fixture f(4 * kPage);
  f.insert(1, 0, 4 * kPage);
  CHECK(f.tier.contains(segment(1), 0, nullptr));
  const auto lease = f.insert(2, 0, 4 * kPage + 1, std::byte{7});
  REQUIRE(lease);
  CHECK(lease->bytes()[4 * kPage] == std::byte{7});
  CHECK_FALSE(f.tier.contains(segment(2), 0, nullptr));
}

TEST_CASE("an entry under lease is not evicted, whatever is asked", "[unit][hot_tier]") {
  Fixture f(4 * kPage);
  const auto lease = f.insert(1, 0, 2 * kPage, std::byte{1});
  f.insert(2, 0, 2 * kPage);
  CHECK(f.tier.make_room(100 * kPage) == 2 * kPage);
  CHECK(f.tier.make_room(1) == 0);
  CHECK(f.tier.contains(segment(1), 0, nullptr));
  CHECK(lease->bytes()[0] == std::byte{1});
}

TEST_CASE("with everything under lease a new layer is served and not kept", "[unit][hot_tier]") {
  Fixture f(4 * kPage);
  const auto first = f.insert(1, 0, 4 * kPage);
  auto second = f.insert(2, 0, kPage);
  CHECK(second);
  CHECK_FALSE(f.tier.contains(segment(2), 0, nullptr));
  CHECK(f.tier.stats().bytes == 5 * kPage);
  second.reset();
  CHECK(f.tier.stats().bytes == 4 * kPage);
}

TEST_CASE(
    "an erased segment is gone at once; its leased layers stay readable and counted until let go",
    "[unit][hot_tier]") {
  Fixture f;
  f.insert(1, 0, kPage);
  auto lease = f.insert(1, 1, kPage, std::byte{9});
  f.insert(2, 0, kPage);
  f.tier.erase(segment(1));
  CHECK_FALSE(f.tier.contains(segment(1), 0, nullptr));
  CHECK_FALSE(f.tier.contains(segment(1), 1, nullptr));
  CHECK(f.tier.contains(segment(2), 0, nullptr));
  CHECK(lease->bytes()[0] == std::byte{9});
  CHECK(f.tier.stats().entries == 1);
  CHECK(f.tier.stats().bytes == 2 * kPage);
  CHECK(f.arena->used_bytes() == 2 * kPage);
  lease.reset();
  CHECK(f.tier.stats().bytes == kPage);
  CHECK(f.arena->used_bytes() == kPage);
}

TEST_CASE("erasing what is not there is fine, and neighbours of its key stay", "[unit][hot_tier]") {
  Fixture f;
  f.insert(1, 0, kPage);
  f.insert(3, 0, kPage);
  f.tier.erase(segment(2));
  CHECK(f.tier.stats().entries == 2);
}

TEST_CASE("a layer that is there already is kept, and its lease returned", "[unit][hot_tier]") {
  Fixture f;
  f.insert(1, 0, kPage, std::byte{1});
  const auto lease = f.insert(1, 0, kPage, std::byte{2});
  CHECK(lease->bytes()[0] == std::byte{1});
  CHECK(f.tier.stats().entries == 1);
  CHECK(f.arena->used_bytes() == kPage);
}

TEST_CASE("make_room frees at least what is asked, coldest first, so that the arena can serve",
          "[unit][hot_tier]") {
  Fixture f(1024 * kPage, 64 * kPage);
  std::size_t kept = 0;
  while (f.arena->used_bytes() + 8 * kPage <= f.arena->memory().size()) {
    f.insert(static_cast<std::uint8_t>(kept++), 0, 8 * kPage);
  }
  REQUIRE(f.arena->allocate(8 * kPage).status().code() == StatusCode::kOutOfSpace);
  CHECK(f.tier.make_room(9 * kPage) == 16 * kPage);
  CHECK_FALSE(f.tier.contains(segment(0), 0, nullptr));
  CHECK_FALSE(f.tier.contains(segment(1), 0, nullptr));
  CHECK(f.tier.contains(segment(2), 0, nullptr));
  CHECK(f.arena->allocate(16 * kPage).ok());
}

TEST_CASE("a tier without room keeps nothing and serves all the same", "[unit][hot_tier]") {
  Fixture f(0);
  const auto lease = f.insert(1, 0, kPage, std::byte{3});
  CHECK(lease->bytes()[0] == std::byte{3});
  CHECK(f.tier.stats().entries == 0);
}

TEST_CASE("a tenant with a limit keeps no more, and what it evicts is its own",
          "[unit][hot_tier]") {
  Fixture f;
  f.tenant = "large";
  f.insert(1, 0, kPage);
  f.tenant = "small";
  for (std::uint8_t n = 2; n <= 5; ++n) f.insert(n, 0, kPage);
  CHECK(f.tier.bytes_of("small") == 4 * kPage);
  SECTION("at once") {
    f.tier.limit_tenant("small", 4 * kPage);
    f.tier.find(segment(2), 0, nullptr);  // used later than 3
    f.tier.limit_tenant("small", 3 * kPage);
    CHECK(f.tier.bytes_of("small") == 3 * kPage);
    CHECK_FALSE(f.tier.contains(segment(3), 0, nullptr));
  }
  SECTION("when it inserts more") {
    f.tier.limit_tenant("small", 4 * kPage);
    f.insert(6, 0, 2 * kPage);
    CHECK(f.tier.bytes_of("small") == 4 * kPage);
    CHECK_FALSE(f.tier.contains(segment(2), 0, nullptr));
    CHECK_FALSE(f.tier.contains(segment(3), 0, nullptr));
    CHECK(f.tier.contains(segment(6), 0, nullptr));
  }
  SECTION("a layer larger than the limit is served, and evicts nothing") {
    f.tier.limit_tenant("small", 4 * kPage);
    const HotTier::Lease lease = f.insert(6, 0, 5 * kPage);
    CHECK(lease->bytes().size() == 5 * kPage);
    CHECK(f.tier.bytes_of("small") == 4 * kPage);
    CHECK_FALSE(f.tier.contains(segment(6), 0, nullptr));
  }
  SECTION("not what is in use") {
    const HotTier::Lease used = f.tier.find(segment(2), 0, nullptr);
    f.tier.limit_tenant("small", 0);
    CHECK(f.tier.contains(segment(2), 0, nullptr));
    CHECK(f.tier.bytes_of("small") == kPage);
  }
  SECTION("what was in use goes when another is found") {
    HotTier::Lease used[] = {f.tier.find(segment(2), 0, nullptr),
                             f.tier.find(segment(3), 0, nullptr)};
    f.tier.limit_tenant("small", kPage);
    CHECK(f.tier.bytes_of("small") == 2 * kPage);
    for (HotTier::Lease& lease : used) lease.reset();
    CHECK(f.tier.find(segment(3), 0, nullptr));
    CHECK(f.tier.bytes_of("small") == kPage);
    CHECK(f.tier.contains(segment(3), 0, nullptr));
  }
  SECTION("until the limit is taken away") {
    f.tier.limit_tenant("small", kPage);
    f.tier.limit_tenant("small", std::nullopt);
    f.insert(6, 0, 8 * kPage);
    CHECK(f.tier.bytes_of("small") == 9 * kPage);
  }
  CHECK(f.tier.contains(segment(1), 0, nullptr));
  CHECK(f.tier.bytes_of("large") == kPage);
  for (std::uint8_t n = 1; n <= 6; ++n) f.tier.erase(segment(n));
  CHECK(f.tier.bytes_of("small") == 0);
}

TEST_CASE("a lease outlives the tier that gave it", "[unit][hot_tier]") {
  const auto arena = Arena::create(64 * kPage).value();
  HotTier::Lease lease;
  {
    HotTier tier(64 * kPage, make_s3_fifo_policy);
    auto buffer = arena->allocate(kPage).value();
    buffer->bytes()[0] = std::byte{5};
    lease = tier.insert("", segment(1), 0, nullptr, std::move(buffer));
  }
  CHECK(lease->bytes()[0] == std::byte{5});
  CHECK(arena->used_bytes() == kPage);
}

TEST_CASE("readers, writers and erasers share the tier; every lease holds what was put in",
          "[unit][hot_tier]") {
  Fixture f(64 * kPage, 4096 * kPage);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 3000; ++i) {
        const auto n = static_cast<std::uint8_t>(random() % 40);
        if (random() % 20 == 0) f.tier.erase(segment(n));
        auto lease = f.tier.find(segment(n), 0, nullptr);
        if (!lease) {
          auto buffer = f.arena->allocate(2 * kPage + n);
          if (!buffer.ok()) continue;
          std::ranges::fill((*buffer)->bytes(), static_cast<std::byte>(n));
          lease = f.tier.insert("", segment(n), 0, nullptr, std::move(buffer).value());
        }
        const Bytes bytes = lease->bytes();
        if (bytes.size() != 2 * kPage + n || bytes.front() != static_cast<std::byte>(n) ||
            bytes.back() != static_cast<std::byte>(n)) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(f.tier.stats().bytes <= 64 * kPage);
  for (std::uint8_t n = 0; n < 40; ++n) f.tier.erase(segment(n));
  CHECK(f.tier.stats().bytes == 0);
  CHECK(f.arena->used_bytes() == 0);
}
