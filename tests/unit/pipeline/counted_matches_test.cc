// Counts of matches that are kept: found again while their rows are the same ones, and bounded.
#include "cachesvc/pipeline/counted_matches.h"

#include <catch2/catch.hpp>
#include <memory>
#include <utility>

namespace precis {
namespace {

Catalog::Row row_of(std::size_t counts) {
  auto row = std::make_shared<SegmentRow>();
  row->plan.counts.resize(counts);
  return row;
}

CountedMatch match_of(std::uint64_t bytes) { return {{}, {}, bytes}; }

}  // namespace

TEST_CASE("counts are found for the same rows, cut, end and pages alone", "[unit][pipeline]") {
  CountedMatches kept;
  const CountedMatches::Key key{{row_of(6), row_of(6)}, {10, 20}, 64, 16};
  kept.add(key, match_of(7));
  REQUIRE(kept.find(key) != nullptr);
  CHECK(kept.find(key)->bytes == 7);

  CountedMatches::Key other = key;
  other.rows[1] = std::make_shared<SegmentRow>(*key.rows[1]);  // trimmed or put anew
  CHECK(kept.find(other) == nullptr);
  other = key;
  other.entries[0] = 11;
  CHECK(kept.find(other) == nullptr);
  other = key;
  other.matched_end = 48;
  CHECK(kept.find(other) == nullptr);
  other = key;
  other.align = 32;
  CHECK(kept.find(other) == nullptr);
  other = {{key.rows[0]}, {10}, 64, 16};
  CHECK(kept.find(other) == nullptr);
}

TEST_CASE("counts that were found longest ago make room", "[unit][pipeline]") {
  CountedMatches kept(1000);  // room for three of 300 each
  std::vector<CountedMatches::Key> keys;
  for (int i = 0; i < 4; ++i) keys.push_back({{row_of(78)}, {1}, 64, 1});
  for (int i = 0; i < 3; ++i) kept.add(keys[i], match_of(i));
  CHECK(kept.find(keys[0]) != nullptr);
  kept.add(keys[3], match_of(3));
  CHECK(kept.find(keys[0]) != nullptr);
  CHECK(kept.find(keys[1]) == nullptr);
  CHECK(kept.find(keys[2]) != nullptr);
  CHECK(kept.find(keys[3]) != nullptr);

  const CountedMatches::Key large{{row_of(400)}, {1}, 64, 1};
  kept.add(large, match_of(9));
  CHECK(kept.find(large) == nullptr);
  CHECK(kept.find(keys[3]) != nullptr);
}

TEST_CASE("a match that is added twice is kept once", "[unit][pipeline]") {
  CountedMatches kept(1000);
  const CountedMatches::Key key{{row_of(78)}, {1}, 64, 1};
  kept.add(key, match_of(1));
  kept.add(key, match_of(1));
  for (int i = 0; i < 2; ++i) kept.add({{row_of(78)}, {1}, 64, 1}, match_of(i));
  CHECK(kept.find(key) != nullptr);  // three fit
}

}  // namespace precis
