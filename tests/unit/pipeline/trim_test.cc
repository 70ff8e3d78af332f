// A dry run tells what a trim to a number of entries of each head would leave. It changes nothing.
#include "cachesvc/pipeline/trim.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/unit/pipeline/served_fixture.h"

namespace precis::testing {
namespace {

struct TrimFixture : ServedFixture {
  TrimPath trim_path{{loop, reads, storage, cold, memory, *catalog, hot_tier, metrics}};

  Result<msg::Trimmed> would_keep(const std::vector<std::uint32_t>& counts) {
    return answer_of(trim_path.would_keep(Owner(f.tenant), segment.row.id, counts));
  }
  Result<msg::Trimmed> would_trim(const Budget& budget) {
    return answer_of(trim_path.run(Owner(f.tenant),
                                   {segment.row.id, budget, Durability::kWal, /*dry_run=*/true}));
  }
  Result<msg::Trimmed> answer_of(Task<Result<msg::Trimmed>> asked) {
    std::optional<Result<msg::Trimmed>> answer;
    const auto run = [&]() -> Task<void> {
      answer.emplace(co_await std::move(asked));
      loop.stop();
    };
    spawn(run());
    loop.run();
    CHECK(*catalog->segment(f.tenant, segment.row.id).value() == segment.row);  // nothing changes
    return std::move(*answer);
  }

  // The share of the layer's mass that the first counts[...] entries of its heads have, from the
  // records that were put.
  double mass_of(std::uint32_t layer, const std::vector<std::uint32_t>& counts) const {
    std::vector<std::pair<float, bool>> scores;  // and whether the entry is kept
    std::size_t head = std::size_t{layer} * f.model.num_kv_heads;
    for (Bytes rest = segment.layers[layer]; !rest.empty(); ++head) {
      std::size_t size = 0;
      const auto record = kernels::open_record(rest, &size).value();
      for (std::uint32_t i = 0; i < record.count; ++i) {
        if (!std::isfinite(record.scores[i])) continue;  // of a protected entry
        scores.emplace_back(record.scores[i], i < counts[head]);
      }
      rest = rest.subspan(size);
    }
    if (scores.empty()) return 1;
    const double lowest = std::ranges::min(scores).first;
    double kept = 0, all = 0;
    for (const auto& [score, is_kept] : scores) {
      all += score - lowest;
      kept += is_kept ? score - lowest : 0;
    }
    return all > 0 ? kept / all : 1;
  }
};

TEST_CASE_METHOD(TrimFixture, "counts of the entries of a budget leave what the budget leaves",
                 "[unit][pipeline]") {
  const std::vector<std::uint32_t> counts(kHeads, 30);
  const auto by_counts = would_keep(counts), by_budget = would_trim(Budget::entries(30));
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
  const auto told = would_keep(counts);
  INFO(told.status().to_string());
  REQUIRE(told.ok());
  CHECK(told->entries == 3 * kEntries + 5);
  counts[5] = kEntries;
  std::uint64_t bytes = 0;
  for (const std::uint32_t count : counts) {
    bytes += RecordLayout::of(count, {f.model.head_dim, f.model.dtype}).size;
  }
  CHECK(told->stored_bytes == bytes);
  CHECK(told->freed_bytes == segment.row.stored_bytes - bytes);
  REQUIRE(told->kept_mass.size() == kLayers);
  CHECK(told->kept_mass[0] == 1);
  CHECK(told->kept_mass[1] < 1);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    CHECK(told->kept_mass[layer] == Approx(mass_of(layer, counts)).margin(1e-3));
  }

  const auto whole = would_keep(std::vector<std::uint32_t>(kHeads, ~0u));
  REQUIRE(whole.ok());
  CHECK(whole->entries == kStored);
  CHECK(whole->freed_bytes == 0);
}

TEST_CASE_METHOD(TrimFixture, "counts are refused if heads are missing", "[unit][pipeline]") {
  const Status few = would_keep(std::vector<std::uint32_t>(kHeads - 1, 1)).status();
  CHECK(few.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(few.message(), Catch::Contains("11 counts for 6 layers of 2 KV heads"));
}

}  // namespace
}  // namespace precis::testing
