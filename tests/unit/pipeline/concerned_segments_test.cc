// The choice of the segments that changes of budgets concern is made in pieces of bounded work.
#include "cachesvc/pipeline/concerned_segments.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "tests/unit/catalog/catalog_fixture.h"

namespace precis::testing {
namespace {

TEST_CASE("sessions with budgets of their own are looked at in several pieces",
          "[unit][pipeline]") {
  constexpr std::size_t kSessions = 300;
  CatalogFixture f;
  const NewSegment alone = f.put(tokens(8), nullptr, 1, 4);
  for (std::size_t i = 0; i < kSessions; ++i) {
    const std::string name = "s" + std::to_string(i);
    const auto first = static_cast<TokenId>(1000 * (i + 1));
    const NewSegment turn = f.put(tokens(8, first), nullptr, 1, 4);
    REQUIRE(f.catalog->open_session(f.tenant, {name, {}, {}}).ok());
    REQUIRE(f.catalog->advance_session(f.tenant, {name, turn.row.id}).ok());
    REQUIRE(f.catalog->set_budget(f.tenant, {{{}, name}, {}, Budget::entries(2)}).ok());
  }
  BudgetsToApply request;
  msg::BudgetChange& change = request.changes.emplace_back();
  change.after.keep = Budget::entries(1);
  const BudgetDefaults silent;
  std::optional<Result<ConcernedSegments>> result;
  const auto piece = concerned_by(*f.catalog, f.tenant, silent, request, result);
  std::size_t pieces = 1;
  while (piece()) ++pieces;
  REQUIRE(result);
  REQUIRE(result->ok());
  const ConcernedSegments& chosen = **result;
  REQUIRE(chosen.segments.size() == 1);  // the others' sessions set a keep of their own
  CHECK(chosen.segments[0].id == alone.row.id);
  CHECK(chosen.segments[0].keep == Budget::entries(1));
  CHECK(chosen.apart.size() == kSessions);
  // One piece lists the models, one lists the segments, and one looks at the segments. The other
  // pieces are for the sessions.
  CHECK(pieces >= 3 + 2);
}

TEST_CASE("what was stored after budgets were to be applied is left", "[unit][pipeline]") {
  CatalogFixture f;
  const NewSegment before = f.put(tokens(8), nullptr, 1, 4);
  BudgetsToApply request;
  request.changes.emplace_back().after.keep = Budget::entries(1);
  request.stored_by_ms = f.catalog->stored_uses(f.tenant).front().row->created_unix_ms;
  NewSegment later = f.segment(tokens(8, 1000), nullptr, 1, 4);
  later.row.created_unix_ms = request.stored_by_ms + 1;
  REQUIRE(f.commit(later).ok());
  const BudgetDefaults silent;
  const auto chosen = [&] {
    std::optional<Result<ConcernedSegments>> result;
    const auto piece = concerned_by(*f.catalog, f.tenant, silent, request, result);
    while (piece()) continue;
    return result.value().value().segments;
  };
  REQUIRE(chosen().size() == 1);
  CHECK(chosen()[0].id == before.row.id);
  ++request.stored_by_ms;
  CHECK(chosen().size() == 2);
}

}  // namespace
}  // namespace precis::testing
