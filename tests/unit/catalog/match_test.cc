// Matching and finding parents, case by case. Blocks are 4 tokens long.
#include <catch2/catch.hpp>

#include "precis/block_digest.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {

// The first `count` of `path`, then tokens that no stored path has.
Tokens diverging(const Tokens& path, std::size_t count, std::size_t more = 20) {
  Tokens ids(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(count));
  ids.insert(ids.end(), more, 7'000'000);
  return ids;
}

std::vector<SegmentId> ids_of(const std::vector<Catalog::Row>& rows) {
  std::vector<SegmentId> ids;
  for (const auto& row : rows) ids.push_back(row->id);
  return ids;
}

}  // namespace

TEST_CASE("an empty catalog matches nothing", "[unit][catalog]") {
  CatalogFixture f;
  CHECK(f.match(tokens(10)).empty());
  CHECK(f.match({}).empty());
  CHECK(f.catalog->parents(f.tenant, hash_path(f.root, tokens(10), 4)).empty());
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
  // Token 8 is the first boundary past the parent's end.
  CHECK(f.match(diverging(second.path, 8)).size() == 2);
  CHECK(f.matched(diverging(second.path, 8)) == 8);
  // Before it there is only the parent, whole if its tail fits.
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

TEST_CASE("another root or another tenant matches nothing", "[unit][catalog]") {
  CatalogFixture f;
  f.put(tokens(8));
  const Digest other = path_root(f.tenant, "", f.fingerprint, "adapter");
  CHECK(f.catalog->match(f.tenant, hash_path(other, tokens(8), 4)).empty());
  CHECK(f.catalog->match("foreign", hash_path(f.root, tokens(8), 4)).empty());
  CHECK(f.catalog->parents("foreign", hash_path(f.root, tokens(9), 4)).empty());
}

TEST_CASE("a put continues at the longest whole chain that ends before the path does",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment a = f.put(tokens(6)), b = f.put(tokens(9), &a);
  const auto parents = [&](const Tokens& ids) {
    return ids_of(f.catalog->parents(f.tenant, hash_path(f.root, ids, 4)));
  };
  CHECK(parents(tokens(30)) == std::vector{a.row.id, b.row.id});
  CHECK(parents(tokens(10)) == std::vector{a.row.id, b.row.id});
  CHECK(parents(tokens(9)) == std::vector{a.row.id});  // Not the whole path itself.
  CHECK(parents(tokens(7)) == std::vector{a.row.id});
  CHECK(parents(tokens(6)).empty());
  CHECK(parents(diverging(b.path, 8)) == std::vector{a.row.id});  // Never in part.
  CHECK(parents(diverging(a.path, 5)).empty());
}

TEST_CASE("a parent may end many blocks before the path's last stored boundary",
          "[unit][catalog]") {
  CatalogFixture f;
  const NewSegment system = f.put(tokens(5)), turn = f.put(tokens(40), &system);
  const Tokens other_turn = diverging(turn.path, 39);
  CHECK(f.matched(other_turn) == 36);
  const TokenPath other_path = hash_path(f.root, other_turn, 4);
  CHECK(ids_of(f.catalog->parents(f.tenant, other_path)) == std::vector{system.row.id});
}
