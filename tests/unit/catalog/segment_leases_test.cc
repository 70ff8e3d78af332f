// Leases: their duration, their tenants and their bounds.
#include "cachesvc/catalog/segment_leases.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "cachesvc/catalog/catalog_keys.h"
#include "tests/unit/catalog/catalog_fixture.h"

namespace precis {
namespace {

using namespace testing;  // for the fixture
using Version = SegmentLeases::Version;

struct LeasesFixture {
  ManualClock clock;
  MemoryStore store;
  SegmentLeases leases{store, clock};

  // A stored segment with one layer of three bytes `byte`.
  SegmentLeases::Row row(std::uint8_t id, const std::string& tenant = "team",
                         std::byte byte = std::byte{7}) {
    SegmentRow made;
    made.id.bytes[0] = id;
    made.tenant = tenant;
    made.created_unix_ms = clock.unix_ms();
    made.plan = {1, 1, {5}};
    made.layer_bytes = {3};
    const std::vector<std::byte> value(3, byte);
    StoreBatch batch;
    batch.puts.push_back({Table::kPayload, payload_key(made.id, 0), value});
    REQUIRE(store.write(batch, Durability::kWal).ok());
    return std::make_shared<const SegmentRow>(made);
  }
  std::uint32_t grant(const SegmentLeases::Row& row, std::uint32_t ms = 1000) {
    return leases.grant({&row, 1}, ms);
  }
  void remove(const SegmentLeases::Row& row) {
    SegmentLeases::Removal removal(leases, {row}, true);
    StoreBatch batch;
    batch.deletes.push_back({Table::kPayload, payload_key(row->id, 0)});
    REQUIRE(store.write(batch, Durability::kWal).ok());
    removal.applied();
  }
  // The byte of the segment's layer, if a lease holds it.
  std::optional<std::byte> held(const SegmentLeases::Row& row, const std::string& tenant = "team") {
    const auto found = leases.find(tenant, Version::of(*row));
    if (!found) return std::nullopt;
    std::vector<std::byte> bytes(3);
    REQUIRE(found->layers->at(0)->read_into(bytes).ok());
    return bytes[0];
  }
};

}  // namespace

TEST_CASE("what is leased is kept when it leaves, until the lease ends", "[unit][catalog]") {
  LeasesFixture f;
  const auto leased = f.row(1), other = f.row(2);
  CHECK(f.grant(leased) == 1000);
  CHECK_FALSE(f.held(leased));  // it is still stored
  f.remove(leased);
  f.remove(other);
  CHECK(f.held(leased) == std::byte{7});
  CHECK_FALSE(f.held(other));
  CHECK_FALSE(f.held(leased, "others"));
  f.clock.advance_ms(999);
  f.leases.sweep();
  CHECK(f.held(leased));
  f.clock.advance_ms(1);
  CHECK_FALSE(f.held(leased));
  CHECK(f.leases.bytes() > 0);
  f.leases.sweep();
  CHECK(f.leases.bytes() == 0);
}

TEST_CASE("who reads what was leased may go on past the end of the lease", "[unit][catalog]") {
  LeasesFixture f;
  const auto leased = f.row(1);
  f.grant(leased);
  f.remove(leased);
  const auto held = f.leases.find("team", Version::of(*leased));
  f.clock.advance_ms(5000);
  f.leases.sweep();
  std::vector<std::byte> bytes(3);
  REQUIRE(held);
  CHECK(held->layers->at(0)->read_into(bytes).ok());
  CHECK(bytes[2] == std::byte{7});
}

TEST_CASE("each version of a segment has a lease of its own", "[unit][catalog]") {
  LeasesFixture f;
  const auto first = f.row(1);
  f.grant(first);
  f.remove(first);
  f.clock.advance_ms(1);
  const auto second = f.row(1, "team", std::byte{9});
  f.grant(second, 500);
  f.remove(second);
  CHECK(f.held(first) == std::byte{7});
  CHECK(f.held(second) == std::byte{9});
  f.clock.advance_ms(500);
  f.leases.sweep();
  CHECK(f.held(first) == std::byte{7});
  CHECK_FALSE(f.held(second));
}

TEST_CASE("a lease that is asked for again is the longer one, and counts once", "[unit][catalog]") {
  LeasesFixture f;
  const auto row = f.row(1);
  CHECK(f.grant(row, 2000) == 2000);
  const std::uint64_t bytes = f.leases.bytes();
  CHECK(f.grant(row, 1000) == 1000);
  CHECK(f.leases.bytes() == bytes);
  f.remove(row);
  f.clock.advance_ms(1999);
  f.leases.sweep();
  CHECK(f.held(row));
  CHECK(f.grant(f.row(2), 1u << 31) == limits::kLeaseMsMax);
  CHECK(f.grant(f.row(3), 0) == 0);
}

TEST_CASE("a change that fails leaves a lease as it was", "[unit][catalog]") {
  LeasesFixture f;
  const auto row = f.row(1);
  f.grant(row);
  {
    const SegmentLeases::Removal removal(f.leases, {row}, true);
    CHECK(f.grant(row) == 0);  // it is being removed
    CHECK(f.grant(f.row(2)) == 1000);
  }
  CHECK_FALSE(f.held(row));
  CHECK(f.grant(row) == 1000);
  f.remove(row);
  CHECK(f.held(row) == std::byte{7});
}

TEST_CASE("what is held is leased to nobody anew, whatever looks like it", "[unit][catalog]") {
  LeasesFixture f;
  const auto leased = f.row(1);
  CHECK_FALSE(f.leases.knows(Version::of(*leased)));
  f.grant(leased);
  CHECK(f.leases.knows(Version::of(*leased)));
  f.remove(leased);
  CHECK(f.grant(f.row(1, "team", std::byte{9})) == 0);
  CHECK(f.held(leased) == std::byte{7});
}

TEST_CASE("what is held gives way where the disk is short of space, the earliest first",
          "[unit][catalog]") {
  LeasesFixture f;
  const auto first = f.row(1), second = f.row(2), third = f.row(3), stored = f.row(4);
  f.grant(stored, 100);
  f.grant(third, 4000);
  f.grant(second, 3000);
  f.grant(first, 2000);
  for (const auto& row : {first, second, third}) f.remove(row);
  f.leases.sweep();
  CHECK(f.held(first));
  f.leases.sweep(true);
  CHECK_FALSE(f.held(first));
  CHECK_FALSE(f.held(second));
  CHECK(f.held(third));
  f.leases.sweep(true);
  CHECK_FALSE(f.held(third));
  CHECK(f.leases.knows(Version::of(*stored)));  // it takes no space
  f.leases.sweep(true);
}

TEST_CASE("leases have bounds, of a tenant and in all, and room comes back", "[unit][catalog]") {
  LeasesFixture f;
  f.grant(f.row(1));
  const std::uint64_t one = f.leases.bytes();
  SegmentLeases leases(f.store, f.clock, {2 * one, 3 * one});
  const auto grant = [&](const SegmentLeases::Row& row) { return leases.grant({&row, 1}, 1000); };
  CHECK(grant(f.row(1)) == 1000);
  const std::vector<SegmentLeases::Row> both{f.row(2), f.row(3)};
  CHECK(leases.grant(both, 1000) == 0);  // all or none
  CHECK(leases.bytes() == one);
  CHECK(grant(both[0]) == 1000);
  CHECK(grant(both[1]) == 0);
  CHECK(grant(both[0]) == 1000);
  CHECK(grant(f.row(4, "more")) == 1000);
  CHECK(grant(f.row(5, "more")) == 0);
  CHECK(leases.bytes() == 3 * one);
  f.clock.advance_ms(1000);
  CHECK(grant(f.row(5, "more")) == 1000);
  CHECK(leases.bytes() == one);
}

TEST_CASE("a payload that was kept counts until it is given back", "[unit][catalog]") {
  LeasesFixture f;
  const auto leased = f.row(1), other = f.row(2);
  f.grant(leased);
  const std::uint64_t one = f.leases.bytes();
  SegmentLeases leases(f.store, f.clock, {one, one});
  REQUIRE(leases.grant({&leased, 1}, 1000) == 1000);
  {
    SegmentLeases::Removal removal(leases, {leased}, true);
    removal.applied();
  }
  f.clock.advance_ms(1000);
  CHECK(leases.grant({&other, 1}, 1000) == 0);  // the lease ended, its payload is still held
  CHECK(leases.bytes() == 0);
  leases.sweep();
  CHECK(leases.grant({&other, 1}, 1000) == 1000);
}

}  // namespace precis
