// Pages of lists, prefixes of ids, and totals that are maintained instead of summed again.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "precis/limits.h"
#include "tests/unit/catalog/all_rows.h"
#include "tests/unit/catalog/catalog_fixture.h"

namespace precis {
namespace {

using namespace precis::testing;

// The ids of all pages of the tenant's segments, with `rows` rows a page.
std::vector<SegmentId> all_pages(const CatalogFixture& f, std::uint32_t rows,
                                 std::optional<Digest> model = {}) {
  std::vector<SegmentId> ids;
  msg::ListPrefixes request{model, rows};
  for (int pages = 0; pages < 1000; ++pages) {
    const auto page = f.catalog->segments_page(f.tenant, request);
    REQUIRE(page.ok());
    REQUIRE(page->rows.size() <= rows);
    for (const msg::SegmentInfo& row : page->rows) ids.push_back(row.id);
    if (page->next.empty()) return ids;
    request.after = page->next;
  }
  FAIL("the pages never end");
  return ids;
}

// Compares totals() with a sum over every row.
void check_totals(const CatalogFixture& f) {
  const Catalog::Totals totals = f.catalog->totals(f.tenant);
  std::uint64_t stored = 0, original = 0, out_of_service = 0;
  const auto rows = segments_of(*f.catalog, f.tenant, {}, 1u << 20);
  for (const msg::SegmentInfo& row : rows) {
    stored += row.stored_bytes;
    original += row.original_bytes;
    out_of_service += f.segment_code(row.id) == StatusCode::kOk ? 0 : 1;
  }
  REQUIRE(totals.segments == rows.size());
  REQUIRE(totals.stored_bytes == stored);
  REQUIRE(totals.original_bytes == original);
  REQUIRE(totals.quarantined_segments == out_of_service);
}

}  // namespace

TEST_CASE("pages hold every segment once, newest first, however large they are",
          "[unit][catalog]") {
  CatalogFixture f;
  std::vector<SegmentId> newest_first;
  for (std::uint32_t i = 0; i < 23; ++i) {
    f.clock.advance_ms(1);
    newest_first.insert(newest_first.begin(), f.put(tokens(4, 1000 * i)).row.id);
  }
  for (const std::uint32_t rows : {1u, 2u, 7u, 22u, 23u, 24u, 1000u}) {
    CAPTURE(rows);
    CHECK(all_pages(f, rows) == newest_first);
    CHECK(all_pages(f, rows, f.fingerprint) == newest_first);
  }
  CHECK(all_pages(f, 5, Digest{}).empty());
  CHECK(f.catalog->segments_page("foreign", {}).value().rows.empty());
}

TEST_CASE("a page goes on where the one before ended, whatever came and went", "[unit][catalog]") {
  CatalogFixture f;
  std::vector<NewSegment> put;
  for (std::uint32_t i = 0; i < 6; ++i) {
    f.clock.advance_ms(1);
    put.push_back(f.put(tokens(4, 1000 * i)));
  }
  msg::ListPrefixes request{{}, 2};
  request.after = f.catalog->segments_page(f.tenant, request)->next;  // after 5 and 4
  REQUIRE(f.catalog->remove(f.tenant, put[4].row.id, false, nullptr).ok());
  f.clock.advance_ms(1);
  f.put(tokens(4, 77'000));
  const auto page = f.catalog->segments_page(f.tenant, request);
  REQUIRE(page.ok());
  REQUIRE(page->rows.size() == 2);
  CHECK(page->rows[0].id == put[3].row.id);
  CHECK(page->rows[1].id == put[2].row.id);
}

TEST_CASE("a cursor that no page ended with is refused", "[unit][catalog]") {
  const CatalogFixture f;
  msg::ListPrefixes prefixes;
  prefixes.after = "x";
  CHECK_THAT(f.catalog->segments_page(f.tenant, prefixes).status().message(),
             Catch::Contains("not the end of a page of prefixes"));
  CHECK(f.catalog->models_page(f.tenant, {"x"}).status().code() == StatusCode::kInvalidArgument);
  CHECK(f.catalog->sessions_page(f.tenant, {"x"})->rows.empty());  // after any name
}

TEST_CASE("models and sessions come in pages, too", "[unit][catalog]") {
  CatalogFixture f;
  for (std::uint32_t i = 0; i < limits::kModelPageRowsMax; ++i) {
    ModelSpec more = f.model;
    more.name = "model " + std::to_string(i);
    REQUIRE(f.catalog->register_model(f.tenant, more).ok());
  }
  const auto first = f.catalog->models_page(f.tenant, {});
  REQUIRE(first->rows.size() == limits::kModelPageRowsMax);
  const auto second = f.catalog->models_page(f.tenant, {first->next});
  REQUIRE(second->rows.size() == 1);
  CHECK(second->next.empty());
  std::set<std::string> names{second->rows.front().model.name};
  for (const msg::ModelRow& row : first->rows) names.insert(row.model.name);
  CHECK(names.size() == limits::kModelPageRowsMax + 1);

  for (std::uint32_t i = 0; i <= limits::kListPageRowsMax; ++i) {
    REQUIRE(f.catalog->open_session(f.tenant, {"s" + std::to_string(i), {}}).ok());
  }
  const auto sessions = f.catalog->sessions_page(f.tenant, {});
  REQUIRE(sessions->rows.size() == limits::kListPageRowsMax);
  const auto rest = f.catalog->sessions_page(f.tenant, {sessions->next});
  CHECK(rest->rows.size() == 1);
  CHECK(rest->next.empty());
}

TEST_CASE("a segment is found by any beginning of its id that no other has", "[unit][catalog]") {
  CatalogFixture f;
  std::vector<SegmentId> ids;
  for (std::uint32_t i = 0; i < 40; ++i) ids.push_back(f.put(tokens(4, 1000 * i)).row.id);
  for (const SegmentId& id : ids) {
    for (const std::size_t digits : {1u, 2u, 3u, 16u, 32u}) {
      const std::string beginning = id.hex().substr(0, digits);
      const auto alike = std::ranges::count_if(
          ids, [&](const SegmentId& other) { return other.hex().starts_with(beginning); });
      const auto found = f.catalog->find_segment(f.tenant, beginning);
      CAPTURE(beginning, alike);
      if (alike == 1) {
        REQUIRE(found.ok());
        CHECK(found->id == id);
      } else {
        CHECK(found.status().code() == StatusCode::kInvalidArgument);
        const std::string count = alike > 5 ? "more than 5" : std::to_string(alike);
        CHECK_THAT(found.status().message(),
                   Catch::StartsWith(count + " prefix ids begin with '" + beginning + "'"));
      }
      CHECK(f.catalog->find_segment("foreign", beginning).status().code() == StatusCode::kNotFound);
    }
  }
  for (const char* bad : {"", "xyz", "AB", "000000000000000000000000000000000"}) {
    CAPTURE(bad);
    CHECK(f.catalog->find_segment(f.tenant, bad).status().code() == StatusCode::kInvalidArgument);
  }
}

TEST_CASE("totals are those of the rows, whatever was put, removed and taken out",
          "[unit][catalog]") {
  CatalogFixture f;
  std::mt19937 random(20261124);
  std::vector<NewSegment> put;
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t action = random() % 4;
    if (action < 2 || put.empty()) {
      const NewSegment* parent =
          put.empty() || random() % 2 == 0 ? nullptr : &put[random() % put.size()];
      Tokens path = parent ? parent->path : Tokens{};
      const Tokens more = tokens(1 + random() % 6, 1000 * (random() % 50));
      path.insert(path.end(), more.begin(), more.end());
      const NewSegment segment = f.segment(path, parent, 1 + random() % 2, 1 + random() % 3);
      if (f.commit(segment).ok()) put.push_back(segment);
    } else if (action == 2) {
      f.catalog->quarantine(put[random() % put.size()].row);
    } else {
      (void)f.catalog->remove(f.tenant, put[random() % put.size()].row.id, true, nullptr);
    }
    check_totals(f);
    if (round % 50 == 0) f.reopen();
  }
  check_totals(f);
}

}  // namespace precis
