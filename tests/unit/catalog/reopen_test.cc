// Opening: all rows are present again, damaged rows are set aside, newer formats are refused.
#include <catch2/catch.hpp>

#include "cachesvc/catalog/catalog_keys.h"
#include "precis/block_digest.h"
#include "tests/unit/catalog/all_rows.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {

void overwrite(CatalogFixture& f, Table table, const std::string& key, Bytes value) {
  REQUIRE(f.store.write({{{table, key, value}}, {}}, Durability::kWal).ok());
}

// Flips one bit of a stored row.
void damage(CatalogFixture& f, Table table, const std::string& key) {
  auto value = f.store.get(table, key);
  REQUIRE(value.ok());
  (*value)[value->size() / 2] ^= std::byte{4};
  overwrite(f, table, key, *value);
}

StatusCode open_code(CatalogFixture& f) {
  f.catalog.reset();
  return Catalog::open(f.store, f.clock).status().code();
}

}  // namespace

TEST_CASE("segments, chains and models are the same after a restart", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a, 2, 3), c = f.put(tokens(40), &b);
  f.reopen();
  CHECK(f.match(c.path).size() == 3);
  CHECK(**f.catalog->segment(f.tenant, b.row.id) == b.row);
  CHECK(f.has_payload(c));
  CHECK(*f.catalog->model(f.tenant, f.fingerprint) == f.model);
  CHECK(models_of(*f.catalog, f.tenant).at(0).segments == 3);
  CHECK(f.catalog->totals().segments == 3);
  CHECK(f.catalog->totals().quarantined_rows == 0);
}

TEST_CASE("hits are written with a later change, or at the latest when the catalog closes",
          "[unit][catalog]") {
  CatalogFixture f;
  std::vector<NewSegment> segments;
  for (TokenId i = 0; i < 20; ++i) segments.push_back(f.put(tokens(5, i * 1000)));
  for (const NewSegment& segment : segments) {
    f.catalog->count_hit(segment.row.id);
    f.catalog->count_hit(segment.row.id);
  }
  SECTION("closed") { f.reopen(); }
  SECTION("crashed after enough changes") {
    for (TokenId i = 0; i < 3; ++i) f.put(tokens(5, 500'000 + i * 1000));
    f.crash_and_reopen();
  }
  for (const NewSegment& segment : segments) {
    CHECK(f.catalog->info(f.tenant, segment.row.id, false)->hits == 2);
  }
  f.catalog->count_hit(segments[0].row.id);
  CHECK(f.catalog->info(f.tenant, segments[0].row.id, false)->hits == 3);
}

TEST_CASE("hits that could not be written are written later", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  f.catalog->count_hit(a.row.id);
  f.store.fail_next_write(Status::unavailable("gone"));
  CHECK_FALSE(f.commit(f.segment(tokens(5, 900))).ok());
  f.put(tokens(5, 800));
  f.crash_and_reopen();
  CHECK(f.catalog->info(f.tenant, a.row.id, false)->hits == 1);
}

TEST_CASE("a damaged segment row is set aside: counted, not matched, left on disk; the rest serves",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a), other = f.put(tokens(6, 900));
  damage(f, Table::kSegments, segment_key(a.row.id));
  f.reopen();
  CHECK(f.match(b.path).empty());  // Its children are misses, too.
  CHECK(f.matched(other.path) == 6);
  CHECK(f.catalog->totals().quarantined_rows == 1);
  CHECK(f.catalog->totals().quarantined_segments == 1);
  CHECK(f.segment_code(a.row.id) == StatusCode::kNotFound);
  CHECK(f.segment_code(b.row.id) == StatusCode::kCorruption);
  CHECK(f.store.get(Table::kSegments, segment_key(a.row.id)).ok());

  REQUIRE(f.commit(a).ok());  // A new put heals the segment, and its children are served again.
  CHECK(f.matched(b.path) == 9);
  CHECK(f.catalog->totals().quarantined_rows == 0);
  CHECK(f.catalog->totals().quarantined_segments == 0);
}

TEST_CASE("any flipped bit of a segment row is noticed", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  const std::string key = segment_key(a.row.id);
  const auto whole = f.store.get(Table::kSegments, key).value();
  for (std::size_t byte = 0; byte < whole.size(); byte += 3) {
    auto value = whole;
    value[byte] ^= static_cast<std::byte>(1u << (byte % 8));
    overwrite(f, Table::kSegments, key, value);
    f.catalog.reset();
    const auto opened = Catalog::open(f.store, f.clock);
    CAPTURE(byte);
    if (opened.ok()) {
      REQUIRE((*opened)->totals().segments == 0);
      REQUIRE((*opened)->totals().quarantined_rows == 1);
    } else {
      REQUIRE(opened.status().code() == StatusCode::kVersionMismatch);
    }
  }
}

TEST_CASE("a truncated or empty row, or one under another key, is set aside", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  const std::string key = segment_key(a.row.id);
  const auto row = f.store.get(Table::kSegments, key).value();
  SECTION("truncated") { overwrite(f, Table::kSegments, key, Bytes(row).first(row.size() / 2)); }
  SECTION("empty") { overwrite(f, Table::kSegments, key, {}); }
  SECTION("strayed") {
    overwrite(f, Table::kSegments, "another key", row);
    REQUIRE(f.store.write({{}, {{Table::kSegments, key}}}, Durability::kWal).ok());
  }
  f.reopen();
  CHECK(f.match(a.path).empty());
  CHECK(f.catalog->totals().quarantined_rows == 1);
}

TEST_CASE("a damaged session or budget row is set aside, and replaced when it is set anew",
          "[unit][catalog]") {
  CatalogFixture f;
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", 10}).ok());
  REQUIRE(f.catalog->set_budget(f.tenant, {{}, "knorm", {}}).ok());
  damage(f, Table::kSessions, session_key(f.tenant, "chat"));
  damage(f, Table::kBudgets, budget_key(f.tenant, std::nullopt));
  f.reopen();
  CHECK(f.catalog->totals().quarantined_rows == 2);
  CHECK(f.catalog->session(f.tenant, "chat").status().code() == StatusCode::kNotFound);
  CHECK(f.catalog->budgets(f.tenant, {}, {}).effective.version == 0);
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", 10}).ok());
  REQUIRE(f.catalog->set_budget(f.tenant, {{}, "knorm", {}}).ok());
  CHECK(f.catalog->totals().quarantined_rows == 0);
}

TEST_CASE("with its model's row damaged a segment waits until the model is registered again",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a);
  damage(f, Table::kModels, model_key(f.tenant, f.fingerprint));
  f.reopen();
  CHECK(f.match(b.path).empty());
  CHECK(f.segment_code(b.row.id) == StatusCode::kCorruption);
  CHECK(f.catalog->totals().quarantined_segments == 2);
  const auto model = f.catalog->register_model(f.tenant, f.model);
  REQUIRE(model.ok());
  CHECK(model->segments == 2);
  CHECK(f.matched(b.path) == 9);
  CHECK(f.catalog->totals().quarantined_rows == 0);
}

TEST_CASE("a session whose tip's row is damaged can go on from another", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), other = f.put(tokens(6, 900));
  REQUIRE(f.catalog->open_session(f.tenant, {"chat", {}}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"chat", a.row.id}).ok());
  damage(f, Table::kSegments, segment_key(a.row.id));
  f.reopen();
  CHECK(f.catalog->advance_session(f.tenant, {"chat", other.row.id}).ok());
}

TEST_CASE("a whole row that contradicts its parent is out of service", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a);
  SegmentRow wrong = b.row;
  wrong.begin = 5;
  overwrite(f, Table::kSegments, segment_key(wrong.id), encode(wrong));
  f.reopen();
  CHECK(f.matched(b.path) == 6);
  CHECK(f.catalog->totals().quarantined_segments == 1);
  CHECK(f.catalog->remove(f.tenant, b.row.id, false, nullptr).ok());
}

TEST_CASE("rows that stand on each other in a circle are out of service, and can be removed",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a), c = f.put(tokens(12), &b);
  SegmentRow wrong = b.row;
  wrong.parent = c.row.id;
  overwrite(f, Table::kSegments, segment_key(wrong.id), encode(wrong));
  f.reopen();
  CHECK(f.matched(c.path) == 6);
  CHECK(f.catalog->totals().quarantined_segments == 2);
  CHECK(f.catalog->remove(f.tenant, c.row.id, true, nullptr)->segments == 2);
  CHECK(f.catalog->totals().segments == 1);
}

TEST_CASE("a row that names one block twice ends nothing", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(12));
  SegmentRow wrong = a.row;
  wrong.blocks.front() = wrong.blocks.back();
  wrong.plan.counts.assign(wrong.plan.counts.size(), 0);
  overwrite(f, Table::kSegments, segment_key(wrong.id), encode(wrong));
  f.reopen();
  CHECK(f.catalog->remove(f.tenant, wrong.id, false, nullptr).ok());
  CHECK(f.matched(a.path) == 0);
}

TEST_CASE("a row that names a block of another place is not found there", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(14), &a);
  SegmentRow wrong = b.row;
  SECTION("before its own begin, where it would be the best") {
    wrong.blocks.front() = a.row.blocks.front();
    CHECK(f.matched(tokens(5)) == 4);
  }
  SECTION("behind which it does not end") {
    wrong.blocks.back() = a.row.blocks.front();
    wrong.tail = tokens(6);
    wrong.tail.erase(wrong.tail.begin(), wrong.tail.begin() + 4);
    CHECK(f.matched(tokens(6)) == 6);
  }
  overwrite(f, Table::kSegments, segment_key(wrong.id), encode(wrong));
  f.reopen();
  const auto links = f.match(tokens(6));
  REQUIRE_FALSE(links.empty());
  CHECK(links.back().row->id == a.row.id);
  CHECK(links.back().matched_end == 6);
  CHECK(f.matched(tokens(5)) == 4);
  CHECK(f.parents(tokens(7)).back() == a.row.id);
}

TEST_CASE("a catalog of a newer format is refused, a damaged format row too", "[unit][catalog]") {
  CatalogFixture f;
  const std::string key(kCatalogFormatKey);
  overwrite(f, Table::kMeta, key, std::vector<std::byte>{std::byte{2}, {}, {}, {}});
  CHECK(open_code(f) == StatusCode::kVersionMismatch);
  overwrite(f, Table::kMeta, key, std::vector<std::byte>(3));
  CHECK(open_code(f) == StatusCode::kCorruption);
}

TEST_CASE("opening reports what the store reports", "[unit][catalog]") {
  MemoryStore store;
  ManualClock clock;
  store.fail_next_write(Status::out_of_space("full"));  // The format row of a new catalog.
  CHECK(Catalog::open(store, clock).status() == Status::out_of_space("full"));
}
