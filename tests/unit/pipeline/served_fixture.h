// The parts of a service that gets and lookups need, over a store whose reads can fail or block,
// and a segment of real records.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/base/asio_loop.h"
#include "cachesvc/base/log.h"
#include "cachesvc/base/thread_executor.h"
#include "cachesvc/pipeline/get_path.h"
#include "tests/unit/catalog/catalog_fixture.h"
#include "tests/unit/pipeline/doubtful_store.h"
#include "tests/unit/pipeline/made_records.h"
#include "tests/unit/pipeline/near_peer.h"

namespace precis::testing {

inline constexpr std::uint32_t kLayers = 6;    // more than are read ahead and in flight at a time
inline constexpr std::uint32_t kEntries = 70;  // of each head: more than a block of a record
inline constexpr std::uint64_t kHeads = kLayers * 2;
inline constexpr std::uint64_t kStored = kHeads * kEntries;
inline constexpr std::size_t kArenaBytes = 4u << 20;

// A reader with its memory in this process: a push copies at once and completes later.
class NearReader final : public NearPeer {
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

// A service's parts and a stored segment.
struct ServedFixture {
  CatalogFixture f;
  DoubtfulStore store{f.store};
  std::unique_ptr<Catalog> catalog;
  AsioLoop loop;
  std::unique_ptr<Arena> arena = std::move(Arena::create(kArenaBytes)).value();
  std::unique_ptr<Arena::Buffer> zeros = std::move(arena->allocate(kSectionAlign)).value();
  HotTier hot_tier{kArenaBytes, make_s3_fifo_policy};
  PayloadMemory memory{*arena, hot_tier, loop, std::chrono::milliseconds(1)};
  SystemClock rate_clock;
  RestoreRate rate{rate_clock};
  Metrics metrics;
  Log log{Log::Level::kOff};
  FairExecutor reads{std::make_unique<ThreadExecutor>("reads", 4)},
      storage{std::make_unique<ThreadExecutor>("storage", 1)};
  NoRegistration registration;
  ColdReads cold{{loop, reads, storage, memory, *open(), hot_tier, rate, metrics, log, f.clock}};
  GetPath path{{loop, reads, cold, memory, registration, zeros->bytes(), *catalog, hot_tier, rate,
                metrics, f.clock}};
  NearReader reader{loop, 1u << 20};
  std::mt19937 random{3};
  NewSegment segment = put(tokens(80));
  std::shared_ptr<GetPath::Get> get = std::make_shared<GetPath::Get>();
  std::vector<std::uint32_t> served;
  std::function<void(std::uint32_t layer)> on_served = [](std::uint32_t) {};

  ~ServedFixture() { store.mend(); }  // before the reading threads are joined

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
  // Commits a segment. Consecutive seats are in different layers: a smaller cut takes part of each
  // layer.
  NewSegment put(const Tokens& tokens, const NewSegment* parent = nullptr) {
    NewSegment made = f.segment(tokens, parent, 1, kEntries);
    made.row.stored_bytes = 0;
    made.row.prefill_seconds = 8;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      Seats seats(f.model.num_kv_heads);
      for (std::uint32_t h = 0; h < seats.size(); ++h) {
        for (std::uint32_t i = 0; i < kEntries; ++i) {
          seats[h].push_back(1 + (i * f.model.num_kv_heads + h) * kLayers + layer);
        }
      }
      made.layers[layer] =
          make_records({made.row.id, layer, f.model.head_dim, f.model.dtype}, seats, random);
      made.row.layer_bytes[layer] = made.layers[layer].size();
      made.row.stored_bytes += made.layers[layer].size();
    }
    const Status status = catalog->commit(made.row, made.payload(), Durability::kWal);
    INFO(status.to_string());
    REQUIRE(status.ok());
    return made;
  }
  // Trims a segment made by put() to `a_head` entries of each head.
  void trim(const NewSegment& stored, std::uint32_t a_head) {
    SegmentRow row = stored.row;
    row.trimmed = Budget::entries(a_head);
    row.plan.counts.assign(kHeads, a_head);
    row.stored_bytes = 0;
    std::vector<std::vector<std::byte>> cuts;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      std::vector<std::byte>& cut = cuts.emplace_back();
      for (Bytes rest = stored.layers[layer]; !rest.empty();) {
        std::size_t size = 0;
        const auto record = kernels::open_record(rest, &size).value();
        const std::size_t begin = cut.size();
        cut.resize(begin + RecordLayout::of(a_head, {record.head_dim, record.dtype}).size);
        REQUIRE(kernels::write_cut(record, a_head, MutableBytes(cut).subspan(begin)).ok());
        rest = rest.subspan(size);
      }
      row.stored_bytes += row.layer_bytes[layer] = cut.size();
    }
    std::vector<Catalog::Layer> payload;
    for (const auto& cut : cuts) payload.push_back({cut});
    REQUIRE(catalog->trim(stored.row, row, payload, Durability::kWal).value());
    hot_tier.erase(row.id);
  }
  msg::Get request() const {
    msg::Get request;
    request.links = {{segment.row.id}};
    request.destination.size_bytes = reader.memory.size();
    return request;
  }
  Result<msg::GetDone> run(const msg::Get& request) { return run_as(f.tenant, request); }
  Result<msg::GetDone> run_as(const std::string& name, const msg::Get& request) {
    const Tenant tenant{name, ""};
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
  // The bytes that a get of these heads at `entries` brings, computed by the cut alone.
  std::vector<std::byte> expected(std::uint64_t entries, std::uint32_t head_begin = 0,
                                  std::uint32_t num_heads = kHeads / kLayers) const {
    std::vector<std::byte> all;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      const Bytes records[] = {segment.layers[layer]};
      const LayerRecords opened =
          open_layer(records, {layer, head_begin, num_heads, f.model.head_dim, f.model.dtype})
              .value();
      const auto cut = cut_layer(opened, counts_at(opened, std::array{entries}), zeros->bytes());
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
  // Checks that only the hot tier holds memory.
  void check_nothing_held() {
    hot_tier.erase(segment.row.id);
    CHECK(arena->used_bytes() == Arena::taken_bytes(kSectionAlign));
    CHECK(metrics.gets_open == 0);
    CHECK(memory.waiting() == 0);
  }
};

}  // namespace precis::testing
