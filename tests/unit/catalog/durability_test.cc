// A crash leaves everything acknowledged at `wal` or better, whole and with all its parents. The
// memory store simulates the worst crash that RocksDB allows.
#include <catch2/catch.hpp>

#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

TEST_CASE("a segment committed at wal or fsync survives a crash, one at memory may not",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment memory = f.put(tokens(6), nullptr, 1, 1, Durability::kMemory);
  const NewSegment wal = f.put(tokens(6, 900), nullptr, 1, 1, Durability::kWal);
  const NewSegment fsync = f.put(tokens(6, 800), nullptr, 1, 1, Durability::kFsync);
  CHECK(f.matched(memory.path) == 6);
  f.crash_and_reopen();
  CHECK(f.match(memory.path).empty());
  CHECK(f.has_payload(wal));
  CHECK(f.has_payload(fsync));
  CHECK(f.catalog->totals().segments == 2);
}

TEST_CASE("a segment committed at memory survives a clean restart", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment memory = f.put(tokens(6), nullptr, 1, 1, Durability::kMemory);
  f.reopen();
  CHECK(f.matched(memory.path) == 6);
  CHECK(f.has_payload(memory));
}

TEST_CASE("a child at wal makes the parents it stands on as durable as itself", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 1, Durability::kMemory);
  const NewSegment b = f.put(tokens(9), &a, 1, 1, Durability::kMemory);
  const NewSegment c = f.put(tokens(12), &b, 1, 1, Durability::kWal);
  f.crash_and_reopen();
  CHECK(f.matched(c.path) == 12);
  CHECK(f.has_payload(a));
  CHECK(f.has_payload(b));
  CHECK(f.has_payload(c));
}

TEST_CASE("committing again at a better durability keeps that promise", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 1, Durability::kMemory);
  CHECK(f.commit(a, Durability::kWal).ok());
  f.crash_and_reopen();
  CHECK(f.matched(a.path) == 6);
  CHECK(f.has_payload(a));
}

TEST_CASE("hits of a segment that a crash takes do not leave its row behind", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 1, Durability::kMemory);
  f.catalog->count_hit(a.row.id);
  f.put(tokens(6, 900));  // At `wal`: its batch may carry the hits of other segments.
  f.crash_and_reopen();
  CHECK(f.match(a.path).empty());
  CHECK(f.catalog->totals().segments == 1);
}

TEST_CASE("a session is as durable as its tip", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  const NewSegment b = f.put(tokens(9), &a, 1, 1, Durability::kMemory);
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", {}}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", a.row.id}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", b.row.id}).ok());
  REQUIRE(f.catalog->pin_session(f.tenant, {"chat", true}).ok());
  f.crash_and_reopen();
  CHECK(f.tip("chat") == a.row.id);  // The lost segment is no tip.
}

TEST_CASE("a removed segment stays removed after a crash, at whatever durability it was put",
          "[unit][catalog]") {
  CatalogFixture f;
  const auto durability = GENERATE(Durability::kMemory, Durability::kWal);
  const NewSegment a = f.put(tokens(6), nullptr, 1, 1, durability);
  REQUIRE(f.catalog->remove(f.tenant, a.row.id, false, nullptr).ok());
  f.crash_and_reopen();
  CHECK(f.match(a.path).empty());
  CHECK(f.store.stats().payload_bytes == 0);
}

TEST_CASE("a healing that a crash takes leaves the segment quarantined", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  f.catalog->quarantine(a.row);
  REQUIRE(f.commit(a, Durability::kMemory).ok());
  CHECK(f.matched(a.path) == 6);
  f.crash_and_reopen();
  CHECK(f.match(a.path).empty());
  CHECK(f.catalog->totals().quarantined_segments == 1);
}
