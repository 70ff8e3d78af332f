// The pushes of a get, and its cleanup if it ends early: by its reader, by the disk, or for lack of
// memory.
#include "cachesvc/pipeline/get_path.h"
#include "cachesvc/base/thread_executor.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <future>

#include "tests/unit/pipeline/pages_apart.h"
#include "tests/unit/pipeline/served_fixture.h"

namespace precis {
namespace {

using namespace testing;  // for the fixture
using Fixture = ServedFixture;

}  // namespace

TEST_CASE("a get brings each layer's cut in order, from the disk once", "[unit][pipeline]") {
  Fixture f;
  msg::Get request = f.request();
  f.check_brought(f.run(request), kStored);
  CHECK(f.served == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5});
  CHECK(f.store.reads() == kLayers);
  for (const std::uint32_t a_head : {1u, 8u, 67u, kEntries}) {
    request.budget = Budget::entries(a_head);
    f.check_brought(f.run(request), std::uint64_t{a_head} * kHeads);
  }
  CHECK(f.store.reads() == kLayers);
  f.check_nothing_held();
}

TEST_CASE("a layer that can't be read ends its get, and the next one reads that layer alone",
          "[unit][pipeline]") {
  Fixture f;
  const auto failing = static_cast<std::uint32_t>(GENERATE(range(0, int{kLayers})));
  f.store.fail(f.segment, failing, Status::unavailable("the disk is away"));
  const auto done = f.run(f.request());
  CHECK(done.status().code() == StatusCode::kUnavailable);
  CHECK_THAT(done.status().message(), Catch::Contains("layer " + std::to_string(failing)) &&
                                          Catch::Contains("the disk is away"));
  CHECK(f.served.size() == failing);
  CHECK(f.reader.pushes == static_cast<int>(failing));
  const int before = f.store.reads();
  f.store.mend();
  f.check_brought(f.run(f.request()), kStored);
  const int ahead = std::min<int>(kLayers, static_cast<int>(failing) + 3) - 1;  // already read
  CHECK(f.store.reads() - before == static_cast<int>(kLayers) - ahead);
  f.check_nothing_held();
}

TEST_CASE("a tenant's many reads leave another tenant's one its turn", "[unit][pipeline]") {
  Fixture f;
  FairExecutor reads(std::make_unique<ThreadExecutor>("one", 1));
  ColdReads cold({f.loop, reads, f.storage, f.memory, *f.catalog, f.hot_tier, f.rate, f.metrics,
                  f.log, f.f.clock});
  std::promise<void> all_asked;
  reads.post({"gate"}, [&] {
    all_asked.get_future().wait();
    return false;
  });
  const Catalog::Row row = f.catalog->segment(f.f.tenant, f.segment.row.id).value();
  std::string order;
  const auto read = [&](const char* tenant) -> Task<void> {
    std::vector<std::byte> into(row->layer_bytes[0]);
    CHECK((co_await cold.read_into(row, 0, into, Owner(tenant))).ok());
    order += *tenant;
    if (order.size() == 21) f.loop.stop();
  };
  for (int i = 0; i < 20; ++i) spawn(read("many"));
  spawn(read("one"));
  all_asked.set_value();
  f.loop.run();
  CHECK(order.find('o') <= 1);
}

TEST_CASE("a layer that rots in memory is read from the disk again", "[unit][pipeline]") {
  Fixture f;
  f.check_brought(f.run(f.request()), kStored);
  const auto layer = static_cast<std::uint32_t>(GENERATE(range(0, int{kLayers})));
  const Catalog::Row row = f.catalog->segment(f.f.tenant, f.segment.row.id).value();
  {
    const Bytes records = f.hot_tier.find(row->id, layer, row)->bytes();
    const RecordLayout at = RecordLayout::of(kEntries, {f.f.model.head_dim, f.f.model.dtype});
    // The damage is in the last entry of the first head, whose block a cut past 64 entries hashes
    // again, or in the header's magic or version.
    const std::size_t rots =
        GENERATE_COPY(at.values + (kEntries - 1) * at.value_bytes, std::size_t{0}, std::size_t{8});
    const_cast<std::byte&>(records[rots]) ^= std::byte{4};
  }
  msg::Get request = f.request();
  request.budget = Budget::entries(67);
  f.check_brought(f.run(request), 67 * kHeads);
  CHECK(f.metrics.corrupt_layers == 1);
  CHECK(f.store.reads() == static_cast<int>(2 * kLayers - layer));
  CHECK(f.catalog->segment(f.f.tenant, row->id).ok());  // its payload on disk is good
  f.check_nothing_held();
}

TEST_CASE("a get that its reader stops pushes nothing more, whatever was read ahead",
          "[unit][pipeline]") {
  Fixture f;
  f.store.hold(f.segment, 3);
  f.on_served = [&](std::uint32_t layer) {
    if (layer < 2) return;
    f.get->canceled = true;
    f.store.mend();
  };
  const auto done = f.run(f.request());
  CHECK(done.status().code() == StatusCode::kCanceled);
  CHECK(f.reader.pushes == 3);
  CHECK(f.metrics.layers_cold == kLayers);  // reads that had started were awaited
  f.check_nothing_held();
}

TEST_CASE("a check of a segment is not counted among the layers that readers found cold",
          "[unit][pipeline]") {
  Fixture f;
  std::optional<Result<msg::Checked>> checked;
  const auto check = [&]() -> Task<void> {
    checked.emplace(co_await f.cold.check(Owner(f.f.tenant), f.segment.row.id));
    f.loop.stop();
  };
  spawn(check());
  f.loop.run();
  REQUIRE(checked->ok());
  CHECK((*checked)->damage.empty());
  CHECK(f.metrics.layers_cold == 0);
  f.check_brought(f.run(f.request()), kEntries * kHeads);
  CHECK(f.metrics.layers_cold == kLayers);
  f.check_nothing_held();
}

TEST_CASE("a reader that dies ends its get", "[unit][pipeline]") {
  Fixture f;
  f.reader.dies_after = 2;
  const auto done = f.run(f.request());
  CHECK(done.status().code() == StatusCode::kUnavailable);
  CHECK(f.served == std::vector<std::uint32_t>{0, 1});
  f.check_nothing_held();
}

TEST_CASE("a get reads layers from the disk into pages that lie apart", "[unit][pipeline]") {
  Fixture f;
  const auto taken = leave_apart(*f.arena, kArenaBytes / 4);
  f.check_brought(f.run(f.request()), kStored);
}

TEST_CASE("a get without memory is rejected, and served when there is some", "[unit][pipeline]") {
  Fixture f;
  auto taken = f.arena->allocate(kArenaBytes - f.arena->used_bytes()).value();
  const auto done = f.run(f.request());
  CHECK(done.status().code() == StatusCode::kRejected);
  CHECK(f.reader.pushes == 0);
  taken.reset();
  f.check_brought(f.run(f.request()), kStored);
  f.check_nothing_held();
}

TEST_CASE("a get that names what can't be served is told why", "[unit][pipeline]") {
  Fixture f;
  const NewSegment above = f.put(testing::tokens(160), &f.segment);
  const auto refusal = [&](const std::function<void(msg::Get&)>& change) {
    msg::Get request = f.request();
    change(request);
    const Status status = f.run(request).status();
    CHECK(f.reader.pushes == 0);
    return status;
  };
  const Status none = refusal([](msg::Get& get) { get.links.clear(); });
  CHECK(none.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(none.message(), Catch::Contains("0 segments"));

  const Status unknown = refusal([](msg::Get& get) { ++get.links[0].segment.bytes[0]; });
  CHECK(unknown.code() == StatusCode::kNotFound);

  const Status hanging = refusal([&](msg::Get& get) { get.links[0].segment = above.row.id; });
  CHECK(hanging.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(hanging.message(), Catch::Contains("name the whole chain"));

  const Status small = refusal([](msg::Get& get) { get.destination.size_bytes = 1000; });
  CHECK(small.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(small.message(), Catch::Contains("has 1000 B"));

  const Status trimmed = refusal([](msg::Get& get) { get.links[0].entries = kStored + 1; });
  CHECK(trimmed.code() == StatusCode::kNotFound);
  CHECK_THAT(trimmed.message(), Catch::Contains("look the path up again"));

  const std::vector<std::uint32_t> all(kHeads, kEntries);
  const Status budget = refusal([&](msg::Get& get) {
    get.links[0].counts = all;
    get.budget = Budget::entries(1);
  });
  CHECK(budget.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(budget.message(), Catch::Contains("leave the budget out"));

  const Status few = refusal([&](msg::Get& get) { get.links[0].counts = {1}; });
  CHECK(few.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(few.message(), Catch::Contains("has 1 counts, must be 12"));
  const Status some = refusal([&](msg::Get& get) {
    get.links[0].counts = all;
    get.links.push_back({above.row.id});
  });
  CHECK_THAT(some.message(), Catch::Contains("has 0 counts, must be 12"));

  const Status more = refusal([&](msg::Get& get) {
    get.links[0].counts = all;
    ++get.links[0].counts.back();
  });
  CHECK(more.code() == StatusCode::kNotFound);
  CHECK_THAT(more.message(), Catch::Contains("was trimmed to 840 entries since the lookup"));

  const Status heads = refusal([&](msg::Get& get) { get.head_begin = 2; });
  CHECK(heads.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(heads.message(), Catch::Contains("the model has 2 KV heads"));
  CHECK(refusal([&](msg::Get& get) { get.head_count = 3; }).code() == StatusCode::kInvalidArgument);
  CHECK(f.store.reads() == 0);
}

TEST_CASE("a get of counts brings exactly the first entries of each head", "[unit][pipeline]") {
  Fixture f;
  msg::Get request = f.request();
  for (const std::uint32_t a_head : {0u, 1u, 64u, 67u, kEntries}) {
    request.links[0].counts.assign(kHeads, a_head);
    request.destination.size_bytes = f.expected(std::uint64_t{a_head} * kHeads).size();
    f.check_brought(f.run(request), std::uint64_t{a_head} * kHeads);
  }
  // A get of one head; one layer has no entries of that head.
  request.links[0].counts = {5, 0, 66, 70, 1, 2};
  request.head_begin = request.head_count = 1;
  const EntryForm rows = EntryForm::of(f.f.model);
  request.destination.size_bytes = served_counts_bytes(request.links, kLayers, 1, {&rows, 1});
  const auto done = f.run(request);
  REQUIRE(done.ok());
  CHECK(done->bytes == request.destination.size_bytes);
  --request.destination.size_bytes;
  CHECK(f.run(request).status().code() == StatusCode::kInvalidArgument);
  f.check_nothing_held();
}

TEST_CASE("a get of some heads brings them as a get of all does", "[unit][pipeline]") {
  Fixture f;
  msg::Get request = f.request();
  request.budget = Budget::entries(67);
  request.head_begin = GENERATE(0u, 1u);
  request.head_count = request.head_begin == 1 ? 0 : 1;  // 0: all heads from head_begin on
  const auto done = f.run(request);
  REQUIRE(done.ok());
  const auto right = f.expected(67 * kHeads, request.head_begin, 1);
  REQUIRE(done->bytes == right.size());
  CHECK(std::equal(right.begin(), right.end(), f.reader.memory.begin()));
  f.check_nothing_held();
}

TEST_CASE("a get of counts follows a segment that was trimmed and holds them still",
          "[unit][pipeline]") {
  Fixture f;
  const bool holds = GENERATE(true, false);
  f.store.hold(f.segment, 3);
  f.on_served = [&](std::uint32_t layer) {
    if (layer != 0) return;
    f.trim(f.segment, 10);
    f.store.mend();
  };
  msg::Get request = f.request();
  request.links[0].counts.assign(kHeads, holds ? 10 : 11);
  const auto done = f.run(request);
  CHECK(done.status().code() == (holds ? StatusCode::kOk : StatusCode::kNotFound));
  CHECK((f.served.size() == kLayers) == holds);
  f.check_nothing_held();
}

}  // namespace precis
