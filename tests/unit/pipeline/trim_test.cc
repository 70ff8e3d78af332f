// A trim to a number of entries of each head is told, and never made.
#include "cachesvc/pipeline/trim.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/unit/pipeline/served_fixture.h"

namespace precis::testing {
namespace {

struct TrimFixture : ServedFixture {
  TrimPath trim_path{{loop, reads, storage, cold, memory, *catalog, hot_tier, metrics}};

  Result<msg::Trimmed> ask(const std::vector<std::uint32_t>& counts, const Budget& budget,
                           bool dry_run = true) {
    msg::TrimPrefix request;
    request.segment = segment.row.id;
    request.budget = budget;
    request.dry_run = dry_run;
    request.counts = counts;
    std::optional<Result<msg::Trimmed>> answer;
    const auto run = [&]() -> Task<void> {
      answer.emplace(co_await trim_path.run(Owner(f.tenant), request));
      loop.stop();
    };
    spawn(run());
    loop.run();
    CHECK(*catalog->segment(f.tenant, segment.row.id).value() == segment.row);  // nothing changes
    return std::move(*answer);
  }
};

TEST_CASE_METHOD(TrimFixture, "counts of the entries of a budget leave what the budget leaves",
                 "[unit][pipeline]") {
  const std::vector<std::uint32_t> counts(kHeads, 30);
  const auto by_counts = ask(counts, Budget::all()), by_budget = ask({}, Budget::entries(30));
  INFO(by_counts.status().to_string());
  REQUIRE(by_counts.ok());
  REQUIRE(by_budget.ok());
  CHECK(*by_counts == *by_budget);
  CHECK(by_counts->entries == 30 * kHeads);
}

TEST_CASE_METHOD(TrimFixture, "counts of heads may differ, and a head gives at most what it stores",
                 "[unit][pipeline]") {
  std::vector<std::uint32_t> counts(kHeads, 0);
  counts[0] = counts[1] = kEntries;  // the whole first layer
  counts[3] = 5;
  counts[5] = kEntries + 1;
  const auto told = ask(counts, Budget::all());
  INFO(told.status().to_string());
  REQUIRE(told.ok());
  CHECK(told->entries == 3 * kEntries + 5);
  counts[5] = kEntries;
  std::uint64_t bytes = 0;
  for (const std::uint32_t count : counts) {
    bytes += RecordLayout::of(count, f.model.head_dim, f.model.dtype).size;
  }
  CHECK(told->stored_bytes == bytes);
  CHECK(told->freed_bytes == segment.row.stored_bytes - bytes);
  REQUIRE(told->kept_mass.size() == kLayers);
  CHECK(told->kept_mass[0] == 1);
  CHECK(told->kept_mass[1] < 1);

  const auto whole = ask(std::vector<std::uint32_t>(kHeads, ~0u), Budget::all());
  REQUIRE(whole.ok());
  CHECK(whole->entries == kStored);
  CHECK(whole->freed_bytes == 0);
}

TEST_CASE_METHOD(TrimFixture, "counts are refused for a real trim, or if heads are missing",
                 "[unit][pipeline]") {
  const Status real = ask(std::vector<std::uint32_t>(kHeads, 1), Budget::all(), false).status();
  CHECK(real.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(real.message(), Catch::Contains("dry run"));
  const Status few = ask(std::vector<std::uint32_t>(kHeads - 1, 1), Budget::all()).status();
  CHECK(few.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(few.message(), Catch::Contains("11 counts for 6 layers of 2 KV heads"));
}

}  // namespace
}  // namespace precis::testing
