// Matching and finding parents, case by case. Blocks have 4 tokens.
#include <catch2/catch.hpp>

#include "cachesvc/catalog/faithful.h"
#include "precis/block_digest.h"
#include "precis/record_format.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {

// The first `count` tokens of `path`, then tokens that no stored path has.
Tokens diverging(const Tokens& path, std::size_t count, std::size_t more = 20) {
  Tokens ids(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(count));
  ids.insert(ids.end(), more, 7'000'000);
  return ids;
}

}  // namespace

TEST_CASE("an empty catalog matches nothing", "[unit][catalog]") {
  CatalogFixture f;
  CHECK(f.match(tokens(10)).empty());
  CHECK(f.match({}).empty());
  CHECK(f.parents(tokens(10)).empty());
}

TEST_CASE("a whole segment is matched to its end, at a block boundary or not", "[unit][catalog]") {
  CatalogFixture f;
  const std::uint32_t length = GENERATE(1u, 3u, 4u, 5u, 8u, 11u);
  const NewSegment stored = f.put(tokens(length));
  for (const std::uint32_t more : {0u, 1u, 20u}) {
    const auto links = f.match(diverging(stored.path, length, more));
    REQUIRE(links.size() == 1);
    CHECK(*links[0].row == stored.row);
    CHECK(links[0].matched_end == length);
  }
}

TEST_CASE("what shares only the first tokens is matched to the last common block boundary",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment stored = f.put(tokens(11));
  for (std::size_t common = 0; common < 11; ++common) {
    CAPTURE(common);
    CHECK(f.matched(diverging(stored.path, common)) == common / 4 * 4);
    CHECK(f.matched(diverging(stored.path, common, 0)) == common / 4 * 4);
  }
}

TEST_CASE("a chain is matched link by link, the last one in part", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment first = f.put(tokens(6)), second = f.put(tokens(9), &first),
                   third = f.put(tokens(20), &second);
  const auto links = f.match(diverging(third.path, 17));
  REQUIRE(links.size() == 3);
  CHECK(links[0].row->id == first.row.id);
  CHECK(links[0].matched_end == 6);
  CHECK(links[1].row->id == second.row.id);
  CHECK(links[1].matched_end == 9);
  CHECK(links[2].row->id == third.row.id);
  CHECK(links[2].matched_end == 16);
}

TEST_CASE("a boundary inside a child's first, shared block is the child's", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment first = f.put(tokens(6)), second = f.put(tokens(12), &first);
  // Token 8 is the first block boundary after the parent's end.
  CHECK(f.match(diverging(second.path, 8)).size() == 2);
  CHECK(f.matched(diverging(second.path, 8)) == 8);
  // Before that boundary only the parent can match, whole if its tail fits.
  CHECK(f.match(diverging(second.path, 7)).size() == 1);
  CHECK(f.matched(diverging(second.path, 7)) == 6);
  CHECK(f.matched(diverging(second.path, 5)) == 4);
}

TEST_CASE("several short segments inside one block are each found", "[unit][catalog]") {
  CatalogFixture f(64);
  const NewSegment a = f.put(tokens(10)), b = f.put(tokens(20), &a), c = f.put(tokens(30), &b);
  CHECK(f.matched(diverging(c.path, 9)) == 0);
  CHECK(f.matched(diverging(c.path, 10)) == 10);
  CHECK(f.matched(diverging(c.path, 19)) == 10);
  CHECK(f.matched(diverging(c.path, 29)) == 20);
  CHECK(f.matched(diverging(c.path, 30)) == 30);
  CHECK(f.match(c.path).size() == 3);
}

TEST_CASE("where paths fork, each branch is matched by its own tokens", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment trunk = f.put(tokens(6));
  Tokens left = tokens(6), right = tokens(6);
  left.insert(left.end(), {1, 1, 1});
  right.insert(right.end(), {1, 2, 1});
  const NewSegment l = f.put(left, &trunk), r = f.put(right, &trunk);
  CHECK(f.match(left).back().row->id == l.row.id);
  CHECK(f.match(right).back().row->id == r.row.id);
  CHECK(f.match(diverging(right, 7)).back().row->id == trunk.row.id);
}

TEST_CASE("of chains equally long the one with more entries wins, then the newer",
          "[unit][catalog]") {
  CatalogFixture f;
  const Tokens path = tokens(8);
  f.put(path, nullptr, 1, 5);
  const NewSegment more = f.put(path, nullptr, 2, 6);
  f.put(path, nullptr, 3, 4);
  CHECK(f.match(path).back().row->id == more.row.id);
  f.clock.advance_ms(1);
  const NewSegment newer = f.put(path, nullptr, 4, 6);
  CHECK(f.match(path).back().row->id == newer.row.id);
}

TEST_CASE("entries count over the whole chain", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment poor = f.put(tokens(4), nullptr, 1, 1), rich = f.put(tokens(4), nullptr, 2, 3);
  f.put(tokens(8), &poor, 1, 4);                          // 1 + 4
  const NewSegment best = f.put(tokens(8), &rich, 1, 3);  // 3 + 3
  CHECK(f.match(tokens(8)).back().row->id == best.row.id);
}

TEST_CASE("more matched tokens beat more entries", "[unit][catalog]") {
  CatalogFixture f;
  f.put(tokens(8), nullptr, 1, 8);
  const NewSegment longer = f.put(tokens(9), nullptr, 2, 1);
  CHECK(f.match(tokens(9)).back().row->id == longer.row.id);
}

TEST_CASE("a partial link counts the entries of its matched part only", "[unit][catalog]") {
  CatalogFixture f;
  // 8 entries over 16 tokens are about 4 before token 8.
  f.put(tokens(16), nullptr, 1, 8);
  const NewSegment whole = f.put(tokens(8), nullptr, 2, 5);
  CHECK(f.match(diverging(tokens(16), 8)).back().row->id == whole.row.id);
}

TEST_CASE("a segment longer than a layer's window is matched whole or not at all",
          "[unit][catalog]") {
  CatalogFixture f(4, /*window=*/8);
  const NewSegment first = f.put(tokens(20)), second = f.put(tokens(28), &first),
                   third = f.put(tokens(48), &second);
  CHECK(f.matched(diverging(third.path, 19)) == 0);
  CHECK(f.matched(diverging(third.path, 23)) == 20);
  CHECK(f.matched(diverging(third.path, 24)) == 24);  // the second fits into the window
  CHECK(f.matched(diverging(third.path, 47)) == 28);
  CHECK(f.match(third.path).size() == 3);
  // Its tokens up to there may be stored by themselves.
  const NewSegment part = f.put(tokens(40), &second);
  CHECK(f.match(diverging(third.path, 47)).back().row->id == part.row.id);
}

TEST_CASE("another root or another tenant matches nothing", "[unit][catalog]") {
  CatalogFixture f;
  f.put(tokens(8));
  const Digest other = path_root(f.tenant, "", f.fingerprint, "adapter");
  CHECK(f.catalog->match(f.tenant, hash_path(other, tokens(8), 4), 0).empty());
  CHECK(f.catalog->match("foreign", hash_path(f.root, tokens(8), 4), 0).empty());
  CHECK(f.catalog->parents("foreign", hash_path(f.root, tokens(9), 4), 0).empty());
}

TEST_CASE("a put continues at the longest whole chain that ends before the path does",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a);
  CHECK(f.parents(tokens(30)) == std::vector{a.row.id, b.row.id});
  CHECK(f.parents(tokens(10)) == std::vector{a.row.id, b.row.id});
  CHECK(f.parents(tokens(9)) == std::vector{a.row.id});  // not the whole path itself
  CHECK(f.parents(tokens(7)) == std::vector{a.row.id});
  CHECK(f.parents(tokens(6)).empty());
  CHECK(f.parents(diverging(b.path, 8)) == std::vector{a.row.id});  // never in part
  CHECK(f.parents(diverging(a.path, 5)).empty());
}

TEST_CASE("a parent may end many blocks before the path's last stored boundary",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment system = f.put(tokens(5)), turn = f.put(tokens(40), &system);
  const Tokens other_turn = diverging(turn.path, 39);
  CHECK(f.matched(other_turn) == 36);
  CHECK(f.parents(other_turn) == std::vector{system.row.id});
}

TEST_CASE("an approximation does not hide what was computed over all", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment first = f.put(tokens(20), nullptr, 1, 20);
  const NewSegment rough = f.segment(tokens(40), &first, 1, 20, Budget::ratio_ppm(50'000));
  REQUIRE(f.commit(rough).ok());
  const auto check = [&](std::uint32_t faithful_ppm, const std::vector<SegmentId>& chain) {
    CAPTURE(faithful_ppm);
    CHECK(f.parents(tokens(41), faithful_ppm) == chain);
    CHECK(f.match(tokens(40), faithful_ppm).back().row->id == chain.back());
  };
  const std::vector only{first.row.id}, over_little{first.row.id, rough.row.id};
  check(kFaithful, only);
  check(60'000, only);
  check(50'000, over_little);
  check(0, over_little);
  CHECK(f.matched(tokens(30), kFaithful) == 20);
  CHECK(f.matched(tokens(30), 50'000) == 28);

  // All readers prefer an exact segment to the approximation, even if it is shorter or has fewer
  // entries.
  const NewSegment exact = f.put(tokens(40), &first, 1, 1);
  for (const std::uint32_t at : {0u, 50'000u, kFaithful}) check(at, {first.row.id, exact.row.id});
  f.reopen();
  for (const std::uint32_t at : {0u, 50'000u, kFaithful}) check(at, {first.row.id, exact.row.id});
}

TEST_CASE("a segment is as faithful as the least of its chain", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(20), nullptr, 1, 20);
  const NewSegment b = f.segment(tokens(30), &a, 1, 10, Budget::ratio_ppm(300'000));
  REQUIRE(f.commit(b).ok());
  const NewSegment c = f.put(tokens(40), &b);  // computed over all stored entries
  CHECK(f.matched(c.path, 300'000) == 40);
  CHECK(f.matched(c.path, 320'000) == 20);
}

TEST_CASE("what was read of the parents counts beside what is stored of them", "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment first = f.put(tokens(20), nullptr, 1, 20);
  const auto read = GENERATE(Budget::ratio_ppm(100'000), Budget::entries(2),
                             Budget::bytes(2 * 6 * record_entry_bytes({8, Dtype::kBf16})));
  CAPTURE(read.to_string());
  const NewSegment child = f.segment(tokens(40), &first, 1, 20, read);
  REQUIRE(f.commit(child).ok());
  CHECK(f.matched(child.path, 100'000) == 40);
  CHECK(f.matched(child.path, 110'000) == 20);
  // Once the parent stores no more entries than were read of it, nothing more faithful is possible.
  const NewSegment less = trimmed(first, 2);
  REQUIRE(*f.catalog->trim(first.row, less.row, less.payload(), Durability::kWal));
  for (int opened = 0; opened < 2; ++opened, f.reopen())
    CHECK(f.matched(child.path, kFaithful) == 40);
  // After a put of the whole parent, something more faithful is possible.
  REQUIRE(f.commit(first).ok());
  for (int opened = 0; opened < 2; ++opened, f.reopen())
    CHECK(f.matched(child.path, kFaithful) == 20);
}

TEST_CASE("tails that are approximations do not hide shorter ones", "[unit][catalog]") {
  CatalogFixture f(64);
  const NewSegment first = f.put(tokens(10), nullptr, 1, 10), exact = f.put(tokens(20), &first);
  for (const std::uint32_t end : {15u, 25u, 30u}) {
    REQUIRE(f.commit(f.segment(tokens(end), &first, 1, 1, Budget::ratio_ppm(100'000))).ok());
  }
  CHECK(f.matched(tokens(40)) == 30);
  CHECK(f.matched(tokens(40), kFaithful) == 20);
  CHECK(f.matched(tokens(19), kFaithful) == 10);
  CHECK(f.matched(tokens(19), 100'000) == 15);
}

TEST_CASE("a search passes over 64 tails of a block and no more", "[unit][catalog]") {
  for (const std::uint32_t many : {63u, 64u}) {
    CatalogFixture f(256);
    const NewSegment first = f.put(tokens(10), nullptr, 1, 10);
    for (std::uint32_t end = 11; end < 11 + many; ++end) {
      REQUIRE(f.commit(f.segment(tokens(end), &first, 1, 1, Budget::ratio_ppm(100'000))).ok());
    }
    CHECK(f.matched(tokens(200)) == 10 + many);
    CHECK(f.matched(tokens(200), kFaithful) == (many == 63 ? 10 : 0));
  }
}

TEST_CASE("a reader at a ratio asks for as much, any other for all", "[unit][catalog]") {
  CHECK(faithful_for(Budget::ratio_ppm(300'000)) == 300'000);
  CHECK(faithful_for(Budget::ratio_ppm(2'000'000)) == kFaithful);
  for (const std::optional<Budget>& budget :
       {std::optional<Budget>(), std::optional(Budget::all()), std::optional(Budget::entries(1)),
        std::optional(Budget::bytes(1))}) {
    CHECK(faithful_for(budget) == kFaithful);
  }
}
