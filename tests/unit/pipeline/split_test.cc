#include "cachesvc/pipeline/split.h"

#include <catch2/catch.hpp>
#include <map>

#include "precis/block_digest.h"
#include "tests/unit/pipeline/served_fixture.h"

namespace precis::testing {
namespace {

constexpr std::uint32_t kPosition = 40;

// The K and V rows of a layer's heads by head and position.
using Rows = std::multimap<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::byte>>;

void add_rows(Bytes records, Rows& rows) {
  while (!records.empty()) {
    std::size_t size = 0;
    const auto record = kernels::open_record(records, &size).value();
    REQUIRE(kernels::verify_record(record).ok());
    const std::size_t row = record.head_dim * dtype_size_bytes(record.dtype);
    for (std::uint32_t i = 0; i < record.count; ++i) {
      std::vector<std::byte> both(record.keys.begin() + i * row,
                                  record.keys.begin() + (i + 1) * row);
      both.insert(both.end(), record.values.begin() + i * row,
                  record.values.begin() + (i + 1) * row);
      rows.emplace(std::pair(record.head, record.positions[i]), std::move(both));
    }
    records = records.subspan(size);
  }
}

struct SplitFixture : ServedFixture {
  SplitPath split{{loop, reads, storage, cold, memory, *catalog, hot_tier, metrics}};

  Status run(std::uint32_t position, bool waits = true) {
    std::optional<Status> answer;
    const auto ask = [&]() -> Task<void> {
      answer = co_await split.run({f.tenant, 1, &reader}, segment.row.id, position, waits);
      loop.stop();
    };
    spawn(ask());
    loop.run();
    return *answer;
  }
  Catalog::Row stored(const SegmentId& id) { return catalog->segment(f.tenant, id).value(); }
  Rows rows_of(const SegmentRow& row, std::uint32_t layer) {
    std::vector<std::byte> bytes(row.layer_bytes[layer]);
    REQUIRE(catalog->read_layer(row, layer, bytes).ok());
    Rows rows;
    add_rows(bytes, rows);
    return rows;
  }
};

TEST_CASE_METHOD(SplitFixture, "a split copies what the store has, not what memory has",
                 "[unit][pipeline]") {
  const Catalog::Row whole = stored(segment.row.id);
  std::shared_ptr<Arena::Buffer> hot = std::move(arena->allocate(whole->layer_bytes[0])).value();
  std::ranges::copy(segment.layers[0], hot->bytes().begin());
  hot->bytes().back() ^= std::byte{1};  // in the last row's values, or its padding
  hot->bytes()[segment.layers[0].size() / 2] ^= std::byte{255};
  hot_tier.insert(whole->tenant, whole->id, 0, whole, hot);

  REQUIRE(run(kPosition).ok());
  const auto head = stored(part_id(segment.row.id, kPosition)), tail = stored(segment.row.id);
  CHECK(head->end == kPosition);
  CHECK(tail->begin == kPosition);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    CAPTURE(layer);
    Rows expected, found = rows_of(*head, layer);
    add_rows(segment.layers[layer], expected);
    for (const auto& [position, row] : found) CHECK(position.second < kPosition);
    for (const auto& [position, row] : rows_of(*tail, layer)) {
      CHECK(position.second >= kPosition);
      found.emplace(position, row);
    }
    CHECK(found == expected);
  }
}

TEST_CASE_METHOD(SplitFixture, "a split shares the seconds of its prefill by tokens",
                 "[unit][pipeline]") {
  REQUIRE(stored(segment.row.id)->prefill_seconds == 8);
  REQUIRE(run(kPosition / 2).ok());
  CHECK(stored(part_id(segment.row.id, kPosition / 2))->prefill_seconds == 2);
  CHECK(stored(segment.row.id)->prefill_seconds == 6);
}

TEST_CASE_METHOD(SplitFixture, "a split is done once, and not where the segment no longer is",
                 "[unit][pipeline]") {
  REQUIRE(run(kPosition).ok());
  REQUIRE(run(kPosition).ok());
  CHECK(metrics.splits == 1);
  CHECK(run(kPosition - 4).code() == StatusCode::kRejected);  // it begins later now
  CHECK(run(kPosition + 1).code() == StatusCode::kRejected);  // no block boundary
}

TEST_CASE_METHOD(SplitFixture, "an optional split does not wait for memory", "[unit][pipeline]") {
  const auto taken = arena->allocate(arena->memory().size() - arena->used_bytes() - 4096);
  REQUIRE(taken.ok());
  CHECK(run(kPosition, /*waits=*/false).code() == StatusCode::kOutOfSpace);
  CHECK(stored(segment.row.id)->begin == 0);
}

TEST_CASE_METHOD(SplitFixture, "a split that the store refuses leaves the whole segment",
                 "[unit][pipeline]") {
  f.store.fail_next_write(Status::unavailable("gone"));
  CHECK(run(kPosition).code() == StatusCode::kUnavailable);
  CHECK(*stored(segment.row.id) == segment.row);
  CHECK_FALSE(catalog->segment(f.tenant, part_id(segment.row.id, kPosition)).ok());
}

}  // namespace
}  // namespace precis::testing
