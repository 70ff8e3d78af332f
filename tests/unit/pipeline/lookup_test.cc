// A lookup at a budget returns exact counts of the get that follows, whatever happens in between.
#include "cachesvc/pipeline/lookup.h"
#include "cachesvc/base/thread_executor.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/unit/pipeline/served_fixture.h"

namespace precis {
namespace {

using namespace testing;  // for the fixture

struct LookupFixture : ServedFixture {
  PathHasher paths{loop, std::make_unique<ThreadExecutor>("paths", 1), 1};
  Lookup lookup{{loop, reads, paths, rate, f.clock, {cold, memory, *catalog, hot_tier, metrics}}};
  bool gone = false;

  // True once `times` reads have started; false after ten seconds.
  bool has_read(int times) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (store.reads() < times && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    return store.reads() >= times;
  }
  Result<msg::Match> find(std::optional<Budget> keep, std::uint32_t align = 1,
                          Tokens tokens_of_it = tokens(80), std::uint32_t lease_ms = 0) {
    const Tenant tenant{f.tenant, ""};
    std::optional<Result<msg::Match>> answer;
    msg::Lookup request{f.fingerprint, "", std::move(tokens_of_it), keep, align, lease_ms};
    const auto ask = [&]() -> Task<void> {
      answer.emplace(co_await lookup.run(tenant, std::move(request), &reader, gone));
      loop.stop();
    };
    spawn(ask());
    loop.run();
    return std::move(*answer);
  }
};

// A client's request to get a match without counts.
msg::Get get_of(const LookupFixture& f, const msg::Match& match) {
  msg::Get request = f.request();
  request.links[0].created_unix_ms = match.links.at(0).segment.created_unix_ms;
  request.links[0].stored_entries = match.links[0].segment.entries;
  request.links[0].entries = match.links[0].segment.entries;
  return request;
}

void check_counts(const Result<msg::Match>& match, std::uint32_t a_head) {
  INFO(match.status().to_string());
  REQUIRE(match.ok());
  const std::vector<std::uint32_t> right(kHeads, a_head);
  REQUIRE(match->links.size() == 1);
  CHECK(match->links[0].counts == right);
  CHECK(match->plan.counts == right);
}

}  // namespace

TEST_CASE("a lookup at a budget says what a get brings, and reads what is cold once",
          "[unit][pipeline]") {
  LookupFixture f;
  for (const std::uint32_t a_head : {67u, 8u, kEntries}) {
    const auto match = f.find(Budget::entries(a_head));
    check_counts(match, a_head);
    msg::Get request = f.request();
    request.links[0].counts = match->links[0].counts;
    request.destination.size_bytes = match->bytes;
    f.check_brought(f.run(request), std::uint64_t{a_head} * kHeads);
  }
  check_counts(f.find({}, 16), 64);
  check_counts(f.find(Budget::entries(20), 16), 16);
  check_counts(f.find(Budget::entries(1'000'000)), kEntries);  // no more than is stored
  CHECK(f.store.reads() == kLayers);
  f.check_nothing_held();
}

TEST_CASE("a lookup without a budget reads nothing and counts nothing", "[unit][pipeline]") {
  LookupFixture f;
  const auto match = f.find({});
  REQUIRE(match.ok());
  CHECK(match->links[0].counts.empty());
  CHECK(match->plan.counts == std::vector<std::uint32_t>(kHeads, kEntries));
  CHECK(f.store.reads() == 0);
}

TEST_CASE("a lookup predicts what is not on the disk by the rate of the shared storage",
          "[unit][pipeline]") {
  LookupFixture f;
  constexpr std::uint64_t kMeasured = 1 << 20;
  const double share = static_cast<double>(f.segment.row.stored_bytes) / (1 << 20);
  f.rate.served(kMeasured, 1e-6);  // much faster than the others
  f.rate.read_cold(kMeasured, 1);
  const auto predicted = [&] { return f.find({}).value().predicted_seconds / share; };
  CHECK(predicted() == Approx(1).epsilon(0.01));
  f.store.deny();
  CHECK(predicted() == Approx(1).epsilon(0.01));  // the shared storage has no rate yet
  f.rate.read_shared(kMeasured, 10);
  CHECK(predicted() == Approx(10).epsilon(0.01));
  check_counts(f.find(Budget::entries(20)), 20);  // now all of it is in memory
  CHECK(predicted() == Approx(0).margin(0.01));
}

TEST_CASE("what was counted lately is not read again, unless it has changed", "[unit][pipeline]") {
  LookupFixture f;
  check_counts(f.find(Budget::entries(20), 16), 16);
  f.hot_tier.erase(f.segment.row.id);
  check_counts(f.find(Budget::entries(20), 16), 16);
  CHECK(f.store.reads() == kLayers);
  check_counts(f.find(Budget::entries(40), 16), 48);
  CHECK(f.store.reads() == 2 * kLayers);
  f.trim(f.segment, 32);
  check_counts(f.find(Budget::entries(40), 16), 32);
  CHECK(f.store.reads() == 3 * kLayers);
  f.check_nothing_held();
}

TEST_CASE("a lookup counts a segment that is trimmed meanwhile as it is then", "[unit][pipeline]") {
  LookupFixture f;
  f.store.hold(f.segment, 3);
  // Runs while the read of layer 3 is held.
  const auto meanwhile = [&]() -> Task<void> {
    CHECK(co_await run_on(f.storage, f.loop, Owner(f.f.tenant), [&] { return f.has_read(4); }));
    f.trim(f.segment, 10);
    f.store.mend();
  };
  spawn(meanwhile());
  check_counts(f.find(Budget::entries(20)), 10);
  f.check_nothing_held();
}

TEST_CASE("a lookup whose segment is removed meanwhile is to be asked again", "[unit][pipeline]") {
  LookupFixture f;
  f.store.hold(f.segment, 3);
  const auto meanwhile = [&]() -> Task<void> {
    CHECK(co_await run_on(f.storage, f.loop, Owner(f.f.tenant), [&] { return f.has_read(4); }));
    CHECK(f.catalog->remove(f.f.tenant, f.segment.row.id, false, nullptr).ok());
    f.hot_tier.erase(f.segment.row.id);
    f.store.mend();
  };
  spawn(meanwhile());
  const auto match = f.find(Budget::entries(20));
  CHECK(match.status().code() == StatusCode::kRejected);
  CHECK_THAT(match.status().message(), Catch::Contains("was removed while"));
  const auto again = f.find(Budget::entries(20));
  REQUIRE(again.ok());
  CHECK(again->links.empty());
  f.check_nothing_held();
}

TEST_CASE("a lookup doubts records as a get does", "[unit][pipeline]") {
  LookupFixture f;
  SECTION("what rots in memory is read from the disk again") {
    check_counts(f.find(Budget::entries(8)), 8);
    const Catalog::Row row = f.catalog->segment(f.f.tenant, f.segment.row.id).value();
    const Bytes records = f.hot_tier.find(row->id, 2, row)->bytes();
    const_cast<std::byte&>(records[8]) ^= std::byte{4};
    check_counts(f.find(Budget::entries(9)), 9);
    CHECK(f.metrics.corrupt_layers == 1);
  }
  SECTION("what rots on the disk takes its segment out of service") {
    f.store.fail(f.segment, 2, Status::corruption("it rotted"));
    CHECK(f.find(Budget::entries(8)).status().code() == StatusCode::kCorruption);
    f.store.mend();
    const auto match = f.find(Budget::entries(8));
    REQUIRE(match.ok());
    CHECK(match->links.empty());
  }
  SECTION("a disk that is away is said") {
    f.store.fail(f.segment, 2, Status::unavailable("the disk is away"));
    CHECK(f.find(Budget::entries(8)).status().code() == StatusCode::kUnavailable);
    f.store.mend();
    check_counts(f.find(Budget::entries(8)), 8);
  }
  f.check_nothing_held();
}

TEST_CASE("a lookup at what is no budget is refused, whatever is stored", "[unit][pipeline]") {
  LookupFixture f;
  const Tokens path = GENERATE(tokens(80), tokens(80, 7));
  CHECK_THAT(f.find(Budget::loss(0.5).value(), 1, path).status().message(),
             Catch::Contains("a loss is for puts"));
  CHECK_THAT(f.find(Budget::entries(0), 1, path).status().message(), Catch::Contains("keep is 0"));
  CHECK(f.find(Budget::ratio_ppm(1'000'001), 1, path).status().code() ==
        StatusCode::kInvalidArgument);
  CHECK(f.store.reads() == 0);
}

TEST_CASE("a lookup whose client has left counts no further", "[unit][pipeline]") {
  LookupFixture f;
  f.gone = true;
  CHECK(f.find(Budget::entries(8)).status().code() == StatusCode::kCanceled);
  CHECK(f.store.reads() == 0);
}

TEST_CASE("what a lookup leased is brought whatever became of it, until the lease ends",
          "[unit][pipeline]") {
  LookupFixture f;
  const std::optional<Budget> keep =
      GENERATE(as<std::optional<Budget>>(), std::nullopt, Budget::entries(kEntries));
  const auto match = f.find(keep, 1, tokens(80), 1000);
  REQUIRE(match.ok());
  REQUIRE(match->lease_ms == 1000);
  msg::Get request = get_of(f, *match);
  request.links[0].counts = match->links[0].counts;
  SECTION("removed") {
    REQUIRE(f.catalog->remove(f.f.tenant, f.segment.row.id, false, nullptr).ok());
    f.hot_tier.erase(f.segment.row.id);
    CHECK(f.find(keep)->links.empty());
  }
  SECTION("trimmed") {
    f.trim(f.segment, 10);
    CHECK(f.find(keep)->plan.counts == std::vector<std::uint32_t>(kHeads, 10));
  }
  SECTION("removed and put anew") {
    REQUIRE(f.catalog->remove(f.f.tenant, f.segment.row.id, false, nullptr).ok());
    f.hot_tier.erase(f.segment.row.id);
    NewSegment other = f.segment;  // committed in the same millisecond
    for (auto& layer : other.layers) layer.assign(layer.size(), std::byte{1});
    REQUIRE(f.catalog->commit(other.row, other.payload(), Durability::kWal).ok());
  }
  for (int times = 0; times < 2; ++times) {
    f.reader.memory.assign(f.reader.memory.size(), std::byte{});
    f.check_brought(f.run(request), kStored);
  }
  f.f.clock.advance_ms(1000);
  CHECK_FALSE(f.run(request).ok());
  f.catalog->leases().sweep();
  CHECK(f.catalog->leases().bytes() == 0);
  f.check_nothing_held();
}

TEST_CASE("what is stored is read as it is, beside a lease of what it looks like",
          "[unit][pipeline]") {
  LookupFixture f;
  const auto match = f.find({}, 1, tokens(80), 1000);
  REQUIRE(match.ok());
  const auto matched = f.catalog->segment(f.f.tenant, f.segment.row.id);
  REQUIRE(matched.ok());
  REQUIRE(f.catalog->remove(f.f.tenant, f.segment.row.id, false, nullptr).ok());
  f.hot_tier.erase(f.segment.row.id);
  const NewSegment old = std::exchange(f.segment, f.put(tokens(80)));
  REQUIRE(f.segment.row == old.row);
  REQUIRE(f.segment.layers != old.layers);
  f.check_brought(f.run(f.request()), kStored);
  const auto present = f.catalog->segment(f.f.tenant, f.segment.row.id).value();
  const auto lease = [&](const Catalog::Row& row) {
    const Catalog::Link link{row, row->end};
    return f.catalog->lease(f.f.tenant, {&link, 1}, 500);
  };
  CHECK(lease(*matched) == 0);
  CHECK(lease(present) == 500);
  f.segment = old;
  f.check_brought(f.run(get_of(f, *match)), kStored);
  f.check_nothing_held();
}

TEST_CASE("what a get brings was stored at one time", "[unit][pipeline]") {
  LookupFixture f;
  const NewSegment child = f.put(tokens(160), &f.segment);
  const auto match = f.find({}, 1, tokens(160));
  REQUIRE(match.ok());
  REQUIRE(match->links.size() == 2);
  msg::Get request = get_of(f, *match);
  request.links.push_back({child.row.id, {}, kStored});
  request.links[1].created_unix_ms = child.row.created_unix_ms;
  request.links[1].stored_entries = kStored;
  const auto row = f.catalog->segment(f.f.tenant, child.row.id).value();
  REQUIRE(f.catalog->leases().grant({&row, 1}, 1000) == 1000);
  REQUIRE(f.catalog->remove(f.f.tenant, f.segment.row.id, true, nullptr).ok());
  f.hot_tier.erase(f.segment.row.id);
  f.hot_tier.erase(child.row.id);
  SECTION("a lease of a part is none") {}
  SECTION("nor does what was put since take the place of what is not leased") {
    f.f.clock.advance_ms(1);
    f.put(tokens(80));
  }
  CHECK(f.run(request).status().code() == StatusCode::kNotFound);
  CHECK(f.served.empty());
}

TEST_CASE("without a lease what was removed is a miss, and with another tenant's",
          "[unit][pipeline]") {
  LookupFixture f;
  const bool leased = GENERATE(true, false);
  const auto match = f.find({}, 1, tokens(80), leased ? 1000 : 0);
  REQUIRE(match.ok());
  REQUIRE(f.catalog->remove(f.f.tenant, f.segment.row.id, false, nullptr).ok());
  f.hot_tier.erase(f.segment.row.id);
  const std::string tenant = leased ? "other" : f.f.tenant;
  REQUIRE(f.catalog->register_model(tenant, f.f.model).ok());
  CHECK(f.run_as(tenant, get_of(f, *match)).status().code() == StatusCode::kNotFound);
  CHECK(f.store.reads() == 0);
}

TEST_CASE("a get under way goes on by the lease of what is removed", "[unit][pipeline]") {
  LookupFixture f;
  const auto match = f.find({}, 1, tokens(80), 1000);
  REQUIRE(match.ok());
  f.on_served = [&](std::uint32_t layer) {
    if (layer != 0) return;
    REQUIRE(f.catalog->remove(f.f.tenant, f.segment.row.id, false, nullptr).ok());
    f.hot_tier.erase(f.segment.row.id);
  };
  f.check_brought(f.run(get_of(f, *match)), kStored);
  f.check_nothing_held();
}

TEST_CASE("a lookup for whose lease there is no room finds what it finds", "[unit][pipeline]") {
  LookupFixture f;
  auto large = std::make_shared<SegmentRow>();
  large->tenant = f.f.tenant;
  large->plan.counts.resize(limits::kLeaseBytesPerTenantMax / 4 - 256);
  const SegmentLeases::Row row = std::move(large);
  REQUIRE(f.catalog->leases().grant({&row, 1}, 1000) == 1000);
  auto match = f.find({}, 1, tokens(80), 1000);
  REQUIRE(match.ok());
  CHECK(match->links.size() == 1);
  CHECK(match->lease_ms == 0);
  f.f.clock.advance_ms(1000);
  match = f.find({}, 1, tokens(80), 1u << 31);
  REQUIRE(match.ok());
  CHECK(match->lease_ms == limits::kLeaseMsMax);
}

}  // namespace precis
