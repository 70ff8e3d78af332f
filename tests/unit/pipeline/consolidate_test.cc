#include "cachesvc/pipeline/consolidate.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "cachesvc/pipeline/consolidator.h"
#include "cachesvc/pipeline/cut.h"
#include "cachesvc/pipeline/merged_seats.h"
#include "precis/hint_limits.h"
#include "tests/unit/pipeline/served_fixture.h"

namespace precis::testing {
namespace {

// ---- the order

TEST_CASE("merged seats are a permutation, keep each order, and spread each segment evenly",
          "[unit][pipeline]") {
  std::mt19937 random(GENERATE(range(0u, 20u)));
  std::vector<MergedSeats::Segment> segments(2 + random() % 9);
  std::uint64_t all = 0;
  for (auto& segment : segments) {
    segment.tokens = 1 + random() % 50;
    segment.entries = random() % (8 * segment.tokens + 1);
    all += segment.entries;
  }
  const MergedSeats seats(segments);
  std::vector<std::uint32_t> found;
  std::vector<std::vector<std::uint32_t>> of(segments.size());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    for (std::uint32_t seat = 1; seat <= segments[i].entries; ++seat) {
      of[i].push_back(seats.of(i, seat));
    }
    CHECK(std::ranges::is_sorted(of[i]));
    found.insert(found.end(), of[i].begin(), of[i].end());
  }
  std::ranges::sort(found);
  std::vector<std::uint32_t> right(all);
  std::iota(right.begin(), right.end(), 1);
  REQUIRE(found == right);
  // A cut of the merged order cuts all segments at one common number of entries per token.
  for (std::uint64_t cut = 0; cut <= all; cut += 1 + all / 17) {
    double least = 1e9, most = 0;  // the shares at which the next entry joins, and the last one did
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const auto count = std::ranges::count_if(of[i], [&](std::uint32_t s) { return s <= cut; });
      const auto tokens = static_cast<double>(segments[i].tokens);
      if (count > 0) most = std::max(most, static_cast<double>(count) / tokens);
      if (static_cast<std::size_t>(count) < of[i].size()) {
        least = std::min(least, static_cast<double>(count + 1) / tokens);
      }
    }
    CHECK(most <= least);
  }
}

// ---- what is worth it

TEST_CASE("small segments become one, and a large one only with half as much", "[unit][pipeline]") {
  using Bytes = std::vector<std::uint64_t>;
  const auto worth = [](const Bytes& bytes, std::uint64_t bytes_max = 1000) {
    return worth_consolidating(bytes, 4, bytes_max);
  };
  CHECK(worth({}) == 0);
  CHECK(worth({1, 1, 1}) == 0);
  CHECK(worth({1, 1, 1, 1}) == 4);
  CHECK(worth({9, 1, 1, 1, 1}) == 4);
  CHECK(worth({8, 1, 1, 1, 1}) == 5);
  CHECK(worth({1, 1, 9, 1, 1, 1}) == 0);
  CHECK(worth({1, 1, 1, 1}, 3) == 0);
  CHECK(worth({1, 1, 1, 1, 1}, 4) == 4);
}

TEST_CASE("a chain has few segments, and each byte is copied a few times", "[unit][pipeline]") {
  std::mt19937 random(7);
  for (const std::uint32_t turns : {50u, 400u, 4000u}) {
    std::vector<std::uint64_t> chain;
    std::uint64_t copied = 0, all = 0;
    for (std::uint32_t turn = 0; turn < turns; ++turn) {
      const std::size_t count = worth_consolidating(chain, 8, 1u << 30);
      if (count > 0) {
        const auto first = chain.end() - static_cast<std::ptrdiff_t>(count);
        const std::uint64_t sum = std::accumulate(first, chain.end(), std::uint64_t{0});
        chain.erase(first, chain.end());
        chain.push_back(sum);
        copied += sum;
      }
      chain.push_back(1 + random() % 100);
      all += chain.back();
    }
    CAPTURE(turns, chain.size(), copied / all);
    const double doublings = std::log2(turns);
    CHECK(static_cast<double>(chain.size()) <= 8 + doublings);
    CHECK(static_cast<double>(copied) <= 2 * doublings * static_cast<double>(all));
  }
}

TEST_CASE("the chains of tenants take turns, and no tenant takes the places of all",
          "[unit][pipeline]") {
  const auto id = [](std::uint32_t number) {
    SegmentId made;
    std::memcpy(made.bytes.data(), &number, sizeof number);
    return made;
  };
  WaitingTips tips;
  const std::uint32_t many = 2 * WaitingTips::kOfTenantMax;
  for (std::uint32_t i = 0; i < many; ++i) tips.add(Owner("a"), id(i));
  for (int twice = 0; twice < 2; ++twice) tips.add(Owner("c"), id(many));
  tips.add(Owner("b"), id(many + 1));
  std::vector<std::string> tenants;
  for (int i = 0; i < 4; ++i) tenants.push_back(tips.take_next().owner.tenant);
  CHECK(tenants == std::vector<std::string>{"a", "b", "c", "a"});
  std::uint32_t next = 2;  // the oldest first
  for (; !tips.empty(); ++next) REQUIRE(tips.take_next().segment == id(next));
  CHECK(next == WaitingTips::kOfTenantMax);
}

// ---- records

struct ConsolidateFixture : ServedFixture {
  ConsolidatePath consolidate{{loop, reads, storage, cold, memory, *catalog, hot_tier, metrics}};
  std::vector<NewSegment> links{segment};

  // Segments of 80, 20, 40, 24 and 7 tokens; the budget of ServedFixture's rows is made a ratio.
  // `said`: the seconds that the prefill of the 40 tokens took.
  explicit ConsolidateFixture(double said = 4) {
    std::uint32_t end = 80;
    for (const std::uint32_t more : {20u, 40u, 24u, 7u}) {
      end += more;
      NewSegment next = f.segment(tokens(end), &links.back(), 1, kEntries);
      next.row.budget = Budget::all();
      next.row.prefill_seconds = more == 40 ? said : 0.5;
      next.row.stored_bytes = 0;
      const std::uint32_t count = std::min(kEntries, more);
      next.row.plan.counts.assign(kHeads, count);
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        Seats seats(f.model.num_kv_heads);
        for (std::uint32_t h = 0; h < seats.size(); ++h) {
          for (std::uint32_t i = 0; i < count; ++i) {
            seats[h].push_back(1 + (i * f.model.num_kv_heads + h) * kLayers + layer);
          }
        }
        next.layers[layer] =
            make_records({next.row.id, layer, f.model.head_dim, f.model.dtype}, seats, random);
        next.row.stored_bytes += next.row.layer_bytes[layer] = next.layers[layer].size();
      }
      REQUIRE(catalog->commit(next.row, next.payload(), Durability::kWal).ok());
      links.push_back(std::move(next));
    }
  }
  Result<bool> run() {
    std::vector<Catalog::Row> rows = catalog->mergeable(f.tenant, links.back().row.id);
    REQUIRE(rows.size() == 3);
    std::optional<Result<bool>> answer;
    const auto ask = [&]() -> Task<void> {
      answer.emplace(co_await consolidate.run(Owner(f.tenant), std::move(rows)));
      loop.stop();
    };
    spawn(ask());
    loop.run();
    return *answer;
  }
  Catalog::Row merged() { return catalog->segment(f.tenant, links[3].row.id).value(); }
};

TEST_CASE_METHOD(ConsolidateFixture, "a run becomes one segment with the same entries",
                 "[unit][pipeline]") {
  REQUIRE(run().value());
  const Catalog::Row row = merged();
  CHECK(row->begin == 80);
  CHECK(row->end == 164);
  CHECK(row->parent == segment.row.id);
  CHECK(row->former == std::vector{links[1].row.id, links[2].row.id});
  CHECK(row->plan.total() == kHeads * (20 + 40 + 24));
  CHECK(row->prefill_seconds == 5);
  CHECK(metrics.consolidations == 1);
  std::vector<bool> seats(row->plan.total() + 1);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    std::vector<std::byte> bytes(row->layer_bytes[layer]);
    REQUIRE(catalog->read_layer(*row, layer, bytes).ok());
    REQUIRE(check_records(bytes, *row, layer).ok());
    Bytes rest = bytes;
    std::vector<Bytes> from;
    for (int i = 1; i <= 3; ++i) from.push_back(links[i].layers[layer]);
    for (std::uint32_t h = 0; h < f.model.num_kv_heads; ++h) {
      std::size_t size = 0;
      const auto record = kernels::open_record(rest, &size).value();
      rest = rest.subspan(size);
      CHECK(std::ranges::is_sorted(record.seats));
      for (const std::uint32_t seat : record.seats) {
        CHECK_FALSE(seats.at(seat));
        seats[seat] = true;
      }
      // The entries, with their bytes, are those of the links.
      using Entry = std::tuple<std::uint32_t, std::uint32_t, std::string>;
      std::multiset<Entry> found, right;
      const auto add = [](const kernels::RecordView& view, std::multiset<Entry>& to) {
        const std::size_t row_bytes = view.keys.size() / view.count;
        for (std::uint32_t e = 0; e < view.count; ++e) {
          std::string both;
          for (const Bytes section : {view.keys, view.values}) {
            both.append(reinterpret_cast<const char*>(section.data()) + e * row_bytes, row_bytes);
          }
          to.emplace(view.positions[e], std::bit_cast<std::uint32_t>(view.scores[e]),
                     std::move(both));
        }
      };
      add(record, found);
      for (Bytes& link : from) {
        add(kernels::open_record(link, &size).value(), right);
        link = link.subspan(size);
      }
      CHECK(found == right);
    }
  }
}

TEST_CASE_METHOD(ConsolidateFixture,
                 "segments that were trimmed to different shares become one with their mean",
                 "[unit][pipeline]") {
  std::vector<Catalog::Row> rows = catalog->mergeable(f.tenant, links.back().row.id);
  std::uint32_t ppm = 100'000;
  for (Catalog::Row& row : rows) {
    SegmentRow changed = *row;
    changed.trimmed = Budget::ratio_ppm(ppm += 50'000);
    row = std::make_shared<const SegmentRow>(std::move(changed));
  }
  const SegmentRow row = ConsolidatePath::merged_row(rows, f.model).value();
  const double share = static_cast<double>(row.plan.total()) / (84.0 * row.plan.counts.size());
  REQUIRE(row.trimmed);
  CHECK(row.trimmed->kind == Budget::Kind::kRatio);
  CHECK(static_cast<double>(row.trimmed->value) / 1e6 == Approx(share).margin(1e-5));
  CHECK(cut_entries(row, f.model, *row.trimmed).value() == row.plan.total());
}

TEST_CASE("the prefill of a run is known only if each of its segments says its own",
          "[unit][pipeline]") {
  ConsolidateFixture silent(0), endless(limits::kPrefillSecondsMax);
  REQUIRE(silent.run().value());
  CHECK(silent.merged()->prefill_seconds == 0);
  REQUIRE(endless.run().value());
  CHECK(endless.merged()->prefill_seconds == limits::kPrefillSecondsMax);
}

TEST_CASE_METHOD(ConsolidateFixture, "a match that was found before is read for a while",
                 "[unit][pipeline]") {
  msg::Get before = request();
  before.links.clear();
  for (const NewSegment& link : links) {
    msg::GetLink& each = before.links.emplace_back();
    each.segment = link.row.id;
    each.created_unix_ms = link.row.created_unix_ms;
    each.stored_entries = link.row.plan.total();
  }
  const auto first = ServedFixture::run(before);
  REQUIRE(first.ok());
  const std::vector<std::byte> brought = reader.memory;
  std::ranges::fill(reader.memory, std::byte{0});
  REQUIRE(run().value());
  const auto again = ServedFixture::run(before);
  INFO(again.status().to_string());
  REQUIRE(again.ok());
  CHECK(reader.memory == brought);
  f.clock.advance_ms(ConsolidatePath::kFormerMs + 1);
  CHECK(ServedFixture::run(before).status().code() == StatusCode::kNotFound);
}

TEST_CASE_METHOD(ConsolidateFixture, "a run that changed, or has no memory, stays as it is",
                 "[unit][pipeline]") {
  const auto taken = arena->allocate(arena->memory().size() - arena->used_bytes() - 4096);
  REQUIRE(taken.ok());
  CHECK(run().status().code() == StatusCode::kOutOfSpace);
  CHECK(*merged() == links[3].row);
}

TEST_CASE_METHOD(ConsolidateFixture, "a merge that the store refuses leaves the links",
                 "[unit][pipeline]") {
  f.store.fail_next_write(Status::unavailable("gone"));
  CHECK(run().status().code() == StatusCode::kUnavailable);
  for (const NewSegment& link : links) {
    CHECK(*catalog->segment(f.tenant, link.row.id).value() == link.row);
  }
}

}  // namespace
}  // namespace precis::testing
