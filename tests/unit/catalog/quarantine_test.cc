#include <catch2/catch.hpp>

#include "cachesvc/catalog/catalog_keys.h"
#include "tests/unit/catalog/all_rows.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

TEST_CASE(
    "a quarantined segment and what stands on it are a miss, counted, now and after a restart",
    "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a), c = f.put(tokens(12), &b);
  f.catalog->quarantine(b.row);
  for (int opened = 0; opened < 2; ++opened) {
    CHECK(f.matched(c.path) == 6);
    CHECK(f.parents(c.path).size() == 1);
    CHECK(f.segment_code(a.row.id) == StatusCode::kOk);
    CHECK(f.segment_code(b.row.id) == StatusCode::kCorruption);
    CHECK(f.segment_code(c.row.id) == StatusCode::kCorruption);
    CHECK(f.catalog->chain(f.tenant, c.row.id).status().code() == StatusCode::kCorruption);
    CHECK(f.catalog->totals().segments == 3);
    CHECK(f.catalog->totals().quarantined_segments == 2);
    CHECK(f.catalog->totals().quarantined_rows == 0);
    // A search for damage reads quarantined segments, too.
    CHECK_FALSE(f.catalog->stored_segment(f.tenant, a.row.id)->quarantined);
    CHECK(f.catalog->stored_segment(f.tenant, b.row.id)->quarantined);
    CHECK_FALSE(f.catalog->stored_segment(f.tenant, c.row.id)->quarantined);
    CHECK(f.catalog->info(f.tenant, b.row.id, false)->out_of_service);
    CHECK(f.catalog->info(f.tenant, c.row.id, false)->out_of_service);
    CHECK_FALSE(f.catalog->info(f.tenant, a.row.id, false)->out_of_service);
    f.reopen();
  }
}

TEST_CASE("a quarantined segment is still listed and can be removed, mark included",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a);
  f.catalog->quarantine(a.row);
  CHECK(segments_of(*f.catalog, f.tenant, std::nullopt, 10).size() == 2);
  CHECK(f.catalog->info(f.tenant, a.row.id, true).ok());
  REQUIRE(f.catalog->remove(f.tenant, a.row.id, true, nullptr).ok());
  CHECK(f.catalog->totals().quarantined_segments == 0);
  CHECK(f.store.get(Table::kMeta, quarantine_key(a.row.id)).status().code() ==
        StatusCode::kNotFound);
  CHECK(f.store.stats().payload_bytes == 0);
}

TEST_CASE("putting a quarantined segment again heals it and what stands on it", "[unit][catalog]") {
  CatalogFixture f;
  NewSegment a = f.put(tokens(6));
  const NewSegment b = f.put(tokens(9), &a);
  f.catalog->quarantine(a.row);
  a.layers[0].assign(99, std::byte{5});  // A new computation may give other bytes.
  a.row.stored_bytes += 99 - a.row.layer_bytes[0];
  a.row.layer_bytes[0] = 99;
  REQUIRE(f.commit(a).ok());
  for (int opened = 0; opened < 2; ++opened) {
    CHECK(f.matched(b.path) == 9);
    CHECK(f.has_payload(a));
    CHECK(f.has_payload(b));
    CHECK(f.catalog->totals().quarantined_segments == 0);
    CHECK(f.catalog->totals().segments == 2);
    CHECK(f.catalog->totals().stored_bytes == a.row.stored_bytes + b.row.stored_bytes);
    CHECK(models_of(*f.catalog, f.tenant).at(0).segments == 2);
    f.reopen();
  }
}

TEST_CASE("nothing can be put on a quarantined segment", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a);
  f.catalog->quarantine(a.row);
  CHECK(f.commit(f.segment(tokens(8), &a)).code() == StatusCode::kNotFound);
  CHECK(f.commit(b).code() ==
        StatusCode::kNotFound);  // its own bytes are good, but its parent's are not
}

TEST_CASE("a session goes on from another tip when its own is quarantined", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), again = f.put(tokens(6), nullptr, 2);
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", {}}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", a.row.id}).ok());
  f.catalog->quarantine(a.row);
  CHECK(f.catalog->advance_session(f.tenant, {"chat", a.row.id}).status().code() ==
        StatusCode::kCorruption);
  CHECK(f.catalog->advance_session(f.tenant, {"chat", again.row.id}).ok());
}

TEST_CASE("a quarantine that the store cannot note holds at once and is noted with the next change",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  f.store.fail_next_write(Status::out_of_space("full"));
  f.catalog->quarantine(a.row);
  CHECK(f.match(a.path).empty());
  f.put(tokens(4, 900), nullptr, 1, 1, Durability::kMemory);  // too weak to carry the mark
  f.put(tokens(4, 800));
  f.crash_and_reopen();
  CHECK(f.match(a.path).empty());
  CHECK(f.catalog->totals().quarantined_segments == 1);
}

TEST_CASE("a quarantine not yet noted does not outlive the segment's healing or removal",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  f.store.fail_next_write(Status::out_of_space("full"));
  f.catalog->quarantine(a.row);
  const auto durability = GENERATE(Durability::kMemory, Durability::kWal);
  SECTION("healed") { REQUIRE(f.commit(a, durability).ok()); }
  SECTION("removed") {
    REQUIRE(f.catalog->remove(f.tenant, a.row.id, false, nullptr).ok());
    REQUIRE(f.commit(a, durability).ok());
  }
  f.put(tokens(4, 900));
  f.reopen();
  CHECK(f.matched(a.path) == 6);
  CHECK(f.catalog->totals().quarantined_segments == 0);
}

TEST_CASE("quarantining an unknown segment or one a second time is harmless", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  CHECK_FALSE(f.catalog->quarantine(SegmentRow{}));
  CHECK(f.catalog->quarantine(a.row));
  CHECK(f.catalog->quarantine(a.row));
  CHECK(f.catalog->totals().quarantined_segments == 1);
}
