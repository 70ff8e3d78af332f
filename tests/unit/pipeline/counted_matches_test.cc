// Kept counts of matches: found while their rows are unchanged, and bounded in bytes.
#include "cachesvc/pipeline/counted_matches.h"

#include <catch2/catch.hpp>
#include <memory>
#include <utility>

namespace precis {
namespace {

using Row = std::shared_ptr<const SegmentRow>;

CountedMatches::Key key_of(const std::vector<Row>& rows) {
  CountedMatches::Key key{{rows.begin(), rows.end()}, {}, 64, 16};
  key.entries.assign(rows.size(), 10);
  return key;
}

// One link with `counts` counts.
CountedMatch match_of(std::size_t counts, std::uint64_t bytes) {
  return {{std::vector<std::uint32_t>(counts)}, {}, bytes};
}

}  // namespace

TEST_CASE("counts are found for the same rows, cut, end and pages alone", "[unit][pipeline]") {
  CountedMatches kept;
  const Row first = std::make_shared<SegmentRow>(), second = std::make_shared<SegmentRow>();
  const CountedMatches::Key key = key_of({first, second});
  kept.add(key, match_of(6, 7));
  REQUIRE(kept.find(key) != nullptr);
  CHECK(kept.find(key)->bytes == 7);

  const Row trimmed = std::make_shared<SegmentRow>(*second);
  CHECK(kept.find(key_of({first, trimmed})) == nullptr);
  CHECK(kept.find(key_of({second, first})) == nullptr);
  CHECK(kept.find(key_of({first})) == nullptr);
  CountedMatches::Key other = key;
  other.entries[0] = 11;
  CHECK(kept.find(other) == nullptr);
  other = key;
  other.matched_end = 48;
  CHECK(kept.find(other) == nullptr);
  other = key;
  other.align = 32;
  CHECK(kept.find(other) == nullptr);
}

TEST_CASE("a row is not kept for its counts, nor taken for another one", "[unit][pipeline]") {
  CountedMatches kept;
  Row row = std::make_shared<SegmentRow>();
  const std::weak_ptr<const SegmentRow> watched = row;
  kept.add(key_of({row}), match_of(6, 7));
  row.reset();
  CHECK(watched.expired());
  for (int i = 0; i < 100; ++i) {
    CHECK(kept.find(key_of({std::make_shared<SegmentRow>()})) == nullptr);
  }
}

TEST_CASE("counts that were found longest ago make room", "[unit][pipeline]") {
  const Row row = std::make_shared<SegmentRow>();
  const auto key = [&](std::uint64_t entries) {
    CountedMatches::Key made = key_of({row});
    made.entries[0] = entries;
    return made;
  };
  CountedMatches kept(9 * 1024);  // room for nine matches
  for (std::uint64_t i = 0; i < 9; ++i) kept.add(key(i), match_of(1024 - 64 - 256, i));
  for (int i = 0; i < 2; ++i) kept.add(key(8), match_of(1024 - 64 - 256, 8));  // is kept once
  CHECK(kept.find(key(0)) != nullptr);
  kept.add(key(9), match_of(1024 - 64 - 256, 9));
  CHECK(kept.find(key(1)) == nullptr);
  for (const std::uint64_t i : {0, 2, 3, 4, 5, 6, 7, 8, 9}) {
    INFO(i);
    REQUIRE(kept.find(key(i)) != nullptr);
    CHECK(kept.find(key(i))->bytes == i);
  }

  kept.add(key(10), match_of(2048, 10));  // more than an eighth of the room
  CHECK(kept.find(key(10)) == nullptr);
  CHECK(kept.find(key(9)) != nullptr);
}

}  // namespace precis
