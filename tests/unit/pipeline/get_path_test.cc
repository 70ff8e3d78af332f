// What a get pushes, and what is left of it where it ends early: by its reader, by the disk, or for
// want of memory.
#include "cachesvc/pipeline/get_path.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <optional>

#include "cachesvc/base/log.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "tests/unit/catalog/catalog_fixture.h"
#include "tests/unit/pipeline/made_records.h"
#include "tests/unit/pipeline/near_peer.h"
#include "tests/unit/store/forwarding_store.h"

namespace precis {
namespace {

using testing::NewSegment;

constexpr std::uint32_t kLayers = 6;    // more than are read ahead and in flight at a time
constexpr std::uint32_t kEntries = 70;  // of each head: more than a block of a record
constexpr std::uint64_t kHeads = kLayers * 2;
constexpr std::uint64_t kStored = kHeads * kEntries;
constexpr std::size_t kArenaBytes = 4u << 20;

// Counts reads of payload; those of one layer fail, or stand still.
class DoubtfulStore final : public testing::ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;

  void fail(const NewSegment& segment, std::uint32_t layer, Status status) {
    const std::lock_guard lock(mutex_);
    failing_[payload_key(segment.row.id, layer)] = std::move(status);
  }
  void hold(const NewSegment& segment, std::uint32_t layer) {
    const std::lock_guard lock(mutex_);
    held_ = payload_key(segment.row.id, layer);
  }
  void mend() {
    const std::lock_guard lock(mutex_);
    failing_.clear();
    held_.reset();
    changed_.notify_all();
  }
  int reads() const {
    const std::lock_guard lock(mutex_);
    return reads_;
  }

  Status read_into(Table table, const std::string& key, MutableBytes into) override {
    {
      std::unique_lock lock(mutex_);
      ++reads_;
      changed_.wait(lock, [&] { return held_ != key; });
      if (const auto failing = failing_.find(key); failing != failing_.end()) {
        return failing->second;
      }
    }
    return ForwardingStore::read_into(table, key, into);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<std::string, Status> failing_;
  std::optional<std::string> held_;
  int reads_ = 0;
};

// A reader whose memory is here: a push copies, and is told of later.
class NearReader final : public testing::NearPeer {
 public:
  NearReader(EventLoop& loop, std::size_t size_bytes) : memory(size_bytes), loop_(loop) {}
  void push(std::vector<Bytes> from, const Registration&, const RemoteRegion& to,
            std::uint64_t offset, Completion done) override {
    const Status status = pushes++ < dies_after ? Status() : Status::unavailable("the peer died");
    if (status.ok()) {
      for (const Bytes range : from) {
        REQUIRE(offset + range.size() <= to.size_bytes);
        std::memcpy(memory.data() + offset, range.data(), range.size());
        offset += range.size();
      }
    }
    loop_.post([done = std::move(done), status] { done(status); });
  }

  std::vector<std::byte> memory;
  int pushes = 0;
  int dies_after = INT32_MAX;

 private:
  EventLoop& loop_;
};

// A service's parts as far as a get needs them, and a segment of real records.
struct Fixture {
  testing::CatalogFixture f;
  DoubtfulStore store{f.store};
  std::unique_ptr<Catalog> catalog;
  EventLoop loop;
  std::unique_ptr<Arena> arena = std::move(Arena::create(kArenaBytes)).value();
  std::unique_ptr<Arena::Buffer> zeros = std::move(arena->allocate(kSectionAlign)).value();
  HotTier hot_tier{kArenaBytes};
  Memory memory{*arena, hot_tier, loop, std::chrono::milliseconds(1)};
  RestoreRate rate;
  Metrics metrics;
  Log log{Log::Level::kOff};
  FairExecutor reads{"reads", 4}, storage{"storage", 1};
  testing::NoRegistration registration;
  ColdReads cold{{loop, reads, storage, memory, *open(), hot_tier, rate, metrics, log, f.clock}};
  GetPath path{{loop, reads, cold, memory, registration, zeros->bytes(), *catalog, hot_tier, rate,
                metrics, f.clock}};
  NearReader reader{loop, 1u << 20};
  std::mt19937 random{3};
  NewSegment segment = put(testing::tokens(80));
  std::shared_ptr<GetPath::Get> get = std::make_shared<GetPath::Get>();
  std::vector<std::uint32_t> served;
  std::function<void(std::uint32_t layer)> on_served = [](std::uint32_t) {};

  ~Fixture() { store.mend(); }  // before who reads is waited for

  Catalog* open() {
    auto opened = Catalog::open(store, f.clock);
    REQUIRE(opened.ok());
    catalog = std::move(opened).value();
    f.model.num_layers = kLayers;
    f.fingerprint = model_fingerprint(f.model);
    f.root = path_root(f.tenant, "", f.fingerprint, "");
    REQUIRE(catalog->register_model(f.tenant, f.model).ok());
    return catalog.get();
  }
  // Seats go from layer to layer: a smaller cut takes a part of each.
  NewSegment put(const testing::Tokens& tokens, const NewSegment* parent = nullptr) {
    NewSegment made = f.segment(tokens, parent, 1, kEntries);
    made.row.stored_bytes = 0;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      testing::Seats seats(f.model.num_kv_heads);
      for (std::uint32_t h = 0; h < seats.size(); ++h) {
        for (std::uint32_t i = 0; i < kEntries; ++i) {
          seats[h].push_back(1 + (i * f.model.num_kv_heads + h) * kLayers + layer);
        }
      }
      made.layers[layer] = testing::make_records(
          {made.row.id, layer, f.model.head_dim, f.model.dtype}, seats, random);
      made.row.layer_bytes[layer] = made.layers[layer].size();
      made.row.stored_bytes += made.layers[layer].size();
    }
    const Status status = catalog->commit(made.row, made.payload(), Durability::kWal);
    INFO(status.to_string());
    REQUIRE(status.ok());
    return made;
  }
  msg::Get request() const {
    msg::Get request;
    request.links = {{segment.row.id}};
    request.destination.size_bytes = reader.memory.size();
    return request;
  }
  Result<msg::GetDone> run(const msg::Get& request) {
    const Tenant tenant{f.tenant, ""};
    std::optional<Result<msg::GetDone>> answer;
    const std::function<Status(msg::LayerServed)> told = [this](msg::LayerServed layer) {
      served.push_back(layer.layer);
      on_served(layer.layer);
      return Status();
    };
    const auto ask = [&]() -> Task<void> {
      answer.emplace(co_await path.run(get, tenant, request, reader, told));
      loop.stop();
    };
    spawn(ask());
    loop.run();
    return std::move(*answer);
  }
  // What a get at `entries` brings, by the cut alone.
  std::vector<std::byte> expected(std::uint64_t entries) const {
    std::vector<std::byte> all;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      const Bytes records[] = {segment.layers[layer]};
      const auto cut = cut_layer(records, std::array{entries}, layer, f.model.num_kv_heads,
                                 f.model.head_dim, f.model.dtype, zeros->bytes());
      REQUIRE(cut.ok());
      for (const Bytes range : cut->ranges) all.insert(all.end(), range.begin(), range.end());
    }
    return all;
  }
  void check_brought(const Result<msg::GetDone>& done, std::uint64_t entries) const {
    INFO(done.status().to_string());
    REQUIRE(done.ok());
    const auto right = expected(entries);
    REQUIRE(done->bytes == right.size());
    CHECK(std::equal(right.begin(), right.end(), reader.memory.begin()));
  }
  // Nothing is held but what the hot tier keeps.
  void check_nothing_held() {
    hot_tier.erase(segment.row.id);
    CHECK(arena->used_bytes() == kSectionAlign);
    CHECK(metrics.gets_open == 0);
    CHECK(memory.waiting() == 0);
  }
};

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
  const int ahead = std::min<int>(kLayers, static_cast<int>(failing) + 3) - 1;  // were read
  CHECK(f.store.reads() - before == static_cast<int>(kLayers) - ahead);
  f.check_nothing_held();
}

TEST_CASE("a tenant's many reads leave another tenant's one its turn", "[unit][pipeline]") {
  Fixture f;
  FairExecutor reads("one", 1);
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
    const RecordLayout at = RecordLayout::of(kEntries, f.f.model.head_dim, f.f.model.dtype);
    // The last entry of the first head, in a block that a cut past 64 entries hashes anew; and the
    // header, up to its magic and version.
    const std::size_t rots =
        GENERATE_COPY(at.values + (kEntries - 1) * at.row_bytes, std::size_t{0}, std::size_t{8});
    const_cast<std::byte&>(records[rots]) ^= std::byte{4};
  }
  msg::Get request = f.request();
  request.budget = Budget::entries(67);
  f.check_brought(f.run(request), 67 * kHeads);
  CHECK(f.metrics.corrupt_layers == 1);
  CHECK(f.store.reads() == static_cast<int>(2 * kLayers - layer));
  CHECK(f.catalog->segment(f.f.tenant, row->id).ok());  // whose disk is sound
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
  CHECK(f.metrics.layers_cold == kLayers);  // what had begun was waited for
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

TEST_CASE("a get without memory is rejected, and served when there is some", "[unit][pipeline]") {
  Fixture f;
  std::vector<std::unique_ptr<Arena::Buffer>> taken;
  for (std::size_t size = kArenaBytes; size >= 64;) {
    auto piece = f.arena->allocate(size);
    if (piece.ok()) taken.push_back(std::move(piece).value());
    if (!piece.ok()) size /= 2;
  }
  const auto done = f.run(f.request());
  CHECK(done.status().code() == StatusCode::kRejected);
  CHECK(f.reader.pushes == 0);
  taken.clear();
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
  CHECK_THAT(trimmed.message(), Catch::Contains("look it up again"));
  CHECK(f.store.reads() == 0);
}

}  // namespace precis
