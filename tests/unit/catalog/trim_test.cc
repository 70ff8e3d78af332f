// Replacing a stored segment by fewer entries, and by all of them again.
#include <catch2/catch.hpp>
#include <memory>

#include "cachesvc/catalog/segment_tree.h"
#include "tests/unit/catalog/all_rows.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {

bool trim(CatalogFixture& f, const NewSegment& from, Durability durability = Durability::kWal) {
  const NewSegment to = trimmed(from);
  return f.catalog->trim(from.row, to.row, to.payload(), durability).value();
}

}  // namespace

TEST_CASE("a trimmed segment stands in the place of the whole one, also after reopening",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment parent = f.put(tokens(6), nullptr, 1, 5),
                   child = f.put(tokens(9), &parent, 1, 5);
  const NewSegment less = trimmed(parent);
  REQUIRE(trim(f, parent));
  for (int opened = 0; opened < 2; ++opened, f.reopen()) {
    CHECK(**f.catalog->segment(f.tenant, parent.row.id) == less.row);
    CHECK(f.has_payload(less));
    CHECK(f.matched(child.path) == 9);
    CHECK(f.has_payload(child));
    CHECK(f.catalog->info(f.tenant, parent.row.id, false)->entries == 6);
    CHECK(f.catalog->info(f.tenant, parent.row.id, false)->children == 1);
    CHECK(f.catalog->totals().segments == 2);
    CHECK(f.catalog->totals().stored_bytes == less.row.stored_bytes + child.row.stored_bytes);
    CHECK(f.store.stats().payload_bytes == f.catalog->totals().stored_bytes);
  }
}

TEST_CASE("a trim of what is no longer stored changes nothing", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 5), b = f.put(tokens(8, 500), nullptr, 1, 5);
  CHECK_FALSE(trim(f, f.segment(tokens(7))));
  REQUIRE(trim(f, a));
  CHECK_FALSE(trim(f, a));
  REQUIRE(f.catalog->quarantine(b.row));
  CHECK_FALSE(trim(f, b));
  CHECK(f.has_payload(trimmed(a)));
}

TEST_CASE("a trim that the store refuses leaves the segment as it was", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 5);
  const NewSegment less = trimmed(a);
  f.store.fail_next_write(Status::out_of_space("the disk is full"));
  CHECK(f.catalog->trim(a.row, less.row, less.payload(), Durability::kWal).status().code() ==
        StatusCode::kOutOfSpace);
  CHECK(**f.catalog->segment(f.tenant, a.row.id) == a.row);
  CHECK(f.has_payload(a));
}

TEST_CASE("committing a trimmed segment again gives back all of it", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 5), child = f.put(tokens(9), &a);
  REQUIRE(trim(f, a));
  REQUIRE(f.commit(a).ok());
  CHECK(**f.catalog->segment(f.tenant, a.row.id) == a.row);
  CHECK(f.has_payload(a));
  CHECK(f.matched(child.path) == 9);
  CHECK(models_of(*f.catalog, f.tenant).at(0).segments == 2);
}

TEST_CASE("a trim is at least as durable as what it takes the place of", "[unit][catalog]") {
  CatalogFixture f;
  const auto durability = GENERATE(Durability::kMemory, Durability::kWal, Durability::kFsync);
  CAPTURE(durability_name(durability));
  const NewSegment a = f.put(tokens(6), nullptr, 1, 5, durability);
  REQUIRE(trim(f, a, Durability::kMemory));
  CHECK(f.has_payload(trimmed(a)));
  f.catalog.reset();
  if (durability == Durability::kFsync) {
    f.store.lose_power(0);
  } else {
    f.store.crash();
  }
  f.reopen();
  CHECK(f.has_payload(trimmed(a)) == (durability != Durability::kMemory));
  if (durability == Durability::kMemory) CHECK(f.catalog->totals().segments == 0);
}

TEST_CASE("a trim keeps the hits, and no row of before is written over it", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 5);
  for (int i = 0; i < 3; ++i) f.catalog->count_hit(a.row.id);
  REQUIRE(trim(f, a));  // the batch could also carry the row with the hits
  CHECK(f.catalog->info(f.tenant, a.row.id, false)->hits == 3);
  f.crash_and_reopen();
  CHECK(f.has_payload(trimmed(a)));
  CHECK(f.catalog->info(f.tenant, a.row.id, false)->hits == 3);
}

TEST_CASE("bytes of before a trim that fail their check say nothing of what is stored now",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 5);
  REQUIRE(trim(f, a));
  CHECK_FALSE(f.catalog->quarantine(a.row));
  CHECK(f.segment_code(a.row.id) == StatusCode::kOk);
  CHECK(f.catalog->quarantine(trimmed(a).row));
  CHECK(f.segment_code(a.row.id) == StatusCode::kCorruption);
}

TEST_CASE("a trim leaves what stands on the segment in service, and only what is summed follows",
          "[unit][catalog]") {
  constexpr TokenId kChildren = 100;
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 5);
  std::uint64_t asked = 0;  // for the model: once for each segment that is put into service
  SegmentTree tree([&](std::string_view, const Digest&) {
    ++asked;
    return &f.model;
  });
  const auto put = [&](const SegmentRow& row) {
    tree.put(std::make_shared<const SegmentRow>(row), Durability::kWal, 1);
  };
  put(a.row);
  std::vector<SegmentRow> children;
  for (TokenId i = 0; i < kChildren; ++i) {
    Tokens path = tokens(6);
    path.insert(path.end(), {1000 + i, 2000, 3000, 4000});
    children.push_back(f.segment(path, &a).row);
    put(children.back());
  }
  tree.record_changes();
  const std::uint64_t own = children[0].plan.total();
  for (const SegmentRow& row : {trimmed(a).row, a.row}) {
    asked = 0;
    put(row);
    CHECK(asked < kChildren);
    CHECK(tree.in_service() == 1 + kChildren);
    CHECK(tree.of_tenant(f.tenant)->totals().in_service == 1 + kChildren);
    CHECK(tree.of_tenant(f.tenant)->totals().segments == 1 + kChildren);
    for (const SegmentRow& child : children) {
      REQUIRE(tree.find(child.id)->chain_entries == row.plan.total() + own);
    }
    const auto changes = tree.take_changes();
    REQUIRE(changes.size() == 1);
    CHECK(changes[0].after->row->id == a.row.id);
  }
  tree.erase(a.row.id);
  CHECK(tree.in_service() == 0);
}

TEST_CASE("a trim of the only segment of a tenant counts it once", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 5);
  REQUIRE(trim(f, a));
  CHECK(f.catalog->totals(f.tenant).segments == 1);
  CHECK(f.catalog->totals(f.tenant).quarantined_segments == 0);
  REQUIRE(f.catalog->remove(f.tenant, a.row.id, false, nullptr).ok());
  CHECK(f.catalog->totals(f.tenant).segments == 0);
}

TEST_CASE("of two segments with the same tokens, the one with more entries is found after a trim",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment more = f.put(tokens(9), nullptr, 1, 5), less = f.put(tokens(9), nullptr, 2, 3);
  const NewSegment on_more = f.put(tokens(14), &more), on_less = f.put(tokens(14), &less);
  CHECK(f.match(tokens(14)).back().row->id == on_more.row.id);
  REQUIRE(trim(f, more));
  CHECK(f.match(tokens(9)).back().row->id == less.row.id);
  CHECK(f.match(tokens(14)).back().row->id == on_less.row.id);
  REQUIRE(f.commit(more).ok());
  CHECK(f.match(tokens(9)).back().row->id == more.row.id);
  CHECK(f.match(tokens(14)).back().row->id == on_more.row.id);
}
