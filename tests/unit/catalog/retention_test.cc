// Users say what is worth keeping: hints, and pins with their limit.
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "precis/hint_limits.h"
#include "tests/unit/catalog/catalog_fixture.h"

namespace precis::testing {
namespace {

msg::Hints hints(std::optional<std::uint32_t> priority, std::optional<std::uint64_t> ttl = {},
                 std::optional<std::uint64_t> expect = {}) {
  return {priority, ttl, expect};
}

msg::SegmentInfo info(const CatalogFixture& f, const NewSegment& segment) {
  return f.catalog->info(f.tenant, segment.row.id, false).value();
}

std::uint64_t pinned_bytes(const CatalogFixture& f) {
  return f.catalog->totals(f.tenant).pinned_bytes;
}

void pin_at(CatalogFixture& f, const std::string& name, const NewSegment& tip,
            std::optional<std::uint64_t> ttl = {}) {
  REQUIRE(f.catalog->open_session(f.tenant, {name, ttl}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {name, tip.row.id}).ok());
  REQUIRE(f.catalog->pin_session(f.tenant, {name, true}).ok());
}

TEST_CASE("hints set what they name, and are kept as hits are", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 5);
  CHECK(info(f, a).priority == limits::kPriorityUsual);
  CHECK(info(f, a).ttl_seconds == 0);
  CHECK(info(f, a).expected_unix_ms == 0);

  const std::uint64_t now_ms = f.clock.unix_ms();
  f.catalog->hint(f.tenant, a.row.id, hints(80, 60, 10));
  f.catalog->hint(f.tenant, a.row.id, hints({}));
  f.catalog->hint("another tenant", a.row.id, hints(1, 1, 1));
  f.catalog->hint(f.tenant, SegmentId{}, hints(1));
  const auto check = [&] {
    CHECK(info(f, a).priority == 80);
    CHECK(info(f, a).ttl_seconds == 60);
    CHECK(info(f, a).expected_unix_ms == now_ms + 10'000);
  };
  check();
  SECTION("closed") { f.reopen(); }
  SECTION("crashed after a change") {
    f.put(tokens(5, 900));
    f.crash_and_reopen();
  }
  SECTION("trimmed") {
    REQUIRE(f.catalog->trim(a.row, trimmed(a).row, trimmed(a).payload(), Durability::kWal).value());
    check();
    f.crash_and_reopen();
  }
  check();
  f.catalog->hint(f.tenant, a.row.id, hints({}, 0, 0));
  CHECK(info(f, a).priority == 80);
  CHECK(info(f, a).ttl_seconds == 0);
  CHECK(info(f, a).expected_unix_ms == 0);
}

TEST_CASE("retention that is set survives a crash at once, and what is absent stays",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a);
  f.catalog->hint(f.tenant, a.row.id, hints(30, 60));
  const auto set = f.catalog->set_retention(f.tenant, {a.row.id, 80, {}});
  REQUIRE(set.ok());
  CHECK(set->priority == 80);
  CHECK(set->ttl_seconds == 60);
  f.crash_and_reopen();
  CHECK(info(f, a).priority == 80);
  CHECK(info(f, a).ttl_seconds == 60);
  CHECK(info(f, b).priority == limits::kPriorityUsual);
  REQUIRE(f.catalog->set_retention(f.tenant, {a.row.id, {}, 0}).ok());
  f.crash_and_reopen();
  CHECK(info(f, a).priority == 80);
  CHECK(info(f, a).ttl_seconds == 0);
}

TEST_CASE("retention that can't be set changes nothing", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6));
  const auto code = [&](const std::string& tenant, const SegmentId& id) {
    return f.catalog->set_retention(tenant, {id, 80, 60}).status().code();
  };
  CHECK(code("another tenant", a.row.id) == StatusCode::kNotFound);
  CHECK(code(f.tenant, SegmentId{}) == StatusCode::kNotFound);
  f.store.fail_next_write(Status::unavailable("gone"));
  CHECK(code(f.tenant, a.row.id) == StatusCode::kUnavailable);
  CHECK(info(f, a).priority == limits::kPriorityUsual);
  CHECK(info(f, a).ttl_seconds == 0);
  REQUIRE(f.catalog->quarantine(a.row));
  CHECK(code(f.tenant, a.row.id) == StatusCode::kCorruption);
}

TEST_CASE("retention of a segment that a crash may lose writes no row of it", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 1, Durability::kMemory);
  REQUIRE(f.catalog->set_retention(f.tenant, {a.row.id, 80, {}}).ok());
  CHECK(info(f, a).priority == 80);
  REQUIRE(f.catalog->harden(f.tenant, a.row.id, Durability::kWal).ok());
  f.put(tokens(5, 900));  // a later change writes it
  f.crash_and_reopen();
  CHECK(info(f, a).priority == 80);
}

TEST_CASE("pins beyond the limit are refused with the numbers, and nothing changes",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a), c = f.put(tokens(12), &b);
  const std::uint64_t of_ab = a.row.stored_bytes + b.row.stored_bytes;
  const bool of_tenant = GENERATE(true, false);
  const auto limit = [&](std::uint64_t bytes) {
    Catalog::PinnedLimits limits;
    if (of_tenant) limits.of_tenant[f.tenant] = bytes;
    if (!of_tenant) limits.of_all = bytes;
    f.catalog->set_pinned_limits(limits);
  };
  limit(of_ab);
  pin_at(f, "chat", b);
  CHECK(pinned_bytes(f) == of_ab);

  // A turn that needs more is refused, and the session stays as it was.
  const Status turn = f.catalog->advance_session(f.tenant, {"chat", c.row.id}).status();
  CHECK(turn.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(turn.message(), Catch::Contains("session 'chat' is pinned and can't advance"));
  CHECK_THAT(turn.message(), Catch::Contains(std::to_string(of_ab + c.row.stored_bytes) + " B"));
  CHECK_THAT(turn.message(), Catch::Contains(std::to_string(of_ab) + " B (max_pinned_share"));
  CHECK(f.tip("chat") == b.row.id);

  // Segments that are pinned already need nothing more.
  pin_at(f, "same", b);
  pin_at(f, "shorter", a);
  REQUIRE(f.catalog->open_session(f.tenant, {"longer", {}}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"longer", c.row.id}).ok());
  const Status pin = f.catalog->pin_session(f.tenant, {"longer", true}).status();
  CHECK(pin.code() == StatusCode::kOutOfSpace);
  CHECK_FALSE(f.catalog->session(f.tenant, "longer")->pinned);
  CHECK(pinned_bytes(f) == of_ab);

  // A lower limit unpins nothing, and other changes are still possible.
  limit(1);
  CHECK(f.catalog->advance_session(f.tenant, {"chat", b.row.id}).ok());
  CHECK(f.catalog->pin_session(f.tenant, {"chat", false}).ok());
  CHECK(pinned_bytes(f) == of_ab);
  limit(0);
  CHECK(f.catalog->pin_session(f.tenant, {"longer", true}).ok());
  CHECK(pinned_bytes(f) == of_ab + c.row.stored_bytes);
}

TEST_CASE("a put can't restore more of a pinned segment than may be pinned", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6), nullptr, 1, 5), small = trimmed(a);
  REQUIRE(small.row.stored_bytes < a.row.stored_bytes);
  REQUIRE(f.catalog->trim(a.row, small.row, small.payload(), Durability::kWal).value());
  pin_at(f, "chat", a);
  f.catalog->set_pinned_limits({a.row.stored_bytes - 1, {}});
  const Status put = f.commit(a);
  CHECK(put.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(put.message(), Catch::Contains("of a pinned session can't grow"));
  CHECK(pinned_bytes(f) == small.row.stored_bytes);
  f.catalog->set_pinned_limits({a.row.stored_bytes, {}});
  CHECK(f.commit(a).ok());
  CHECK(pinned_bytes(f) == a.row.stored_bytes);
}

TEST_CASE("a pinned session that has expired holds nothing any more", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(6, 900));
  f.catalog->set_pinned_limits({a.row.stored_bytes, {}});
  pin_at(f, "old", a, 10);
  REQUIRE(f.catalog->open_session(f.tenant, {"new", {}}).ok());
  REQUIRE(f.catalog->advance_session(f.tenant, {"new", b.row.id}).ok());
  CHECK_FALSE(f.catalog->pin_session(f.tenant, {"new", true}).ok());
  f.clock.advance_ms(10'000);
  CHECK(f.catalog->pin_session(f.tenant, {"new", true}).ok());
  CHECK(pinned_bytes(f) == b.row.stored_bytes);
}

TEST_CASE("pinned bytes are those of the segments that pinned sessions need, after any changes",
          "[unit][catalog]") {
  std::mt19937 random(20261126);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  std::size_t removed = 0, pins = 0, held = 0;
  for (int round = 0; round < 20; ++round) {
    CatalogFixture f;
    std::vector<NewSegment> all;
    for (int step = 0; step < 150; ++step) {
      const std::string name = "session " + std::to_string(below(4));
      const auto any = [&]() -> const NewSegment& { return all[below(all.size())]; };
      const auto stored = [&](const NewSegment& segment) {
        return f.catalog->info(f.tenant, segment.row.id, false).ok();
      };
      switch (all.empty() ? 0 : below(12)) {
        case 0: {
          const auto first = static_cast<TokenId>(1000 * (step + 1));
          all.push_back(f.put(tokens(4, first), nullptr, 1, 5));
          break;
        }
        case 1:
        case 2: {
          const NewSegment parent = any();
          if (f.segment_code(parent.row.id) != StatusCode::kOk) break;
          Tokens path = parent.path;
          for (TokenId i = 0; i < 4; ++i) path.push_back(static_cast<TokenId>(step * 10) + i);
          all.push_back(f.put(path, &parent, 1, 5));
          break;
        }
        case 3: (void)f.catalog->open_session(f.tenant, {name, {}}); break;
        case 4:
        case 5:
        case 6: (void)f.catalog->advance_session(f.tenant, {name, any().row.id}); break;
        case 7: pins += f.catalog->pin_session(f.tenant, {name, below(3) > 0}).ok() ? 1 : 0; break;
        case 8: (void)f.catalog->remove_session(f.tenant, name); break;
        case 9: {
          const auto gone = f.catalog->remove(f.tenant, any().row.id, below(2) == 0, nullptr);
          removed += gone.ok() ? 1 : 0;
          break;
        }
        case 10: {
          const NewSegment& segment = any();
          if (!stored(segment)) break;
          const auto row = f.catalog->stored_segment(f.tenant, segment.row.id)->row;
          if (below(2) == 0) {
            (void)f.catalog->quarantine(*row);
          } else if (row->stored_bytes == segment.row.stored_bytes) {
            const NewSegment small = trimmed(segment);
            (void)f.catalog->trim(*row, small.row, small.payload(), Durability::kWal);
          }
          break;
        }
        case 11:
          if (below(4) == 0) f.reopen();
          (void)f.commit(any());  // restores what was trimmed, damaged or removed
          break;
      }
      std::uint64_t needed = 0;
      for (const StoredUse& use : f.catalog->stored_uses(f.tenant)) {
        needed += use.pinned ? use.row->stored_bytes : 0;
      }
      CAPTURE(round, step);
      REQUIRE(pinned_bytes(f) == needed);
      REQUIRE(f.catalog->totals().pinned_bytes == needed);
      held += needed > 0 ? 1 : 0;
    }
  }
  CHECK(removed > 0);
  CHECK(pins > 20);
  CHECK(held > 500);
}

}  // namespace
}  // namespace precis::testing
