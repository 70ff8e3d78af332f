// The disk stands still: what is in memory is served, changes wait, and all of them end well when
// it goes on.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "cachesvc/base/arena.h"
#include "cachesvc/store/hot_tier.h"
#include "tests/unit/catalog/catalog_fixture.h"
#include "tests/unit/store/store_machine.h"

using namespace precis;
using namespace precis::testing;

namespace {

// Rows of the same disk as the payload: what goes through the log waits while it stands still.
class HeldRows final : public ForwardingStore {
 public:
  HeldRows(Store& rows, const std::atomic<bool>& held) : ForwardingStore(rows), held_(held) {}
  Status write(const StoreBatch& batch, Durability durability) override {
    if (durability != Durability::kMemory) held_.wait(true);
    return ForwardingStore::write(batch, durability);
  }
  Status harden() override {
    held_.wait(true);
    return ForwardingStore::harden();
  }

 private:
  const std::atomic<bool>& held_;
};

// Counts the batches that have come to it.
class CountingStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  Status write(const StoreBatch& batch, Durability durability) override {
    ++begun;
    return ForwardingStore::write(batch, durability);
  }
  std::atomic<int> begun = 0;
};

constexpr std::size_t kLayerBytes = kWriteBehindBytes / 8;  // a segment has three of them

struct SlowDisk {
  CatalogFixture f;
  FaultyDrive drive;
  std::atomic<bool> held = false;
  std::unique_ptr<Store> store;
  std::unique_ptr<CountingStore> counted;
  std::unique_ptr<Catalog> catalog;

  SlowDisk() { open(); }
  ~SlowDisk() { hold(false); }
  void open() {
    auto opened = open_extent_store(std::make_unique<HeldRows>(f.store, held), drive.folder(),
                                    {16 * kFileBytes, 0.5, kWriteBehindBytes, kTidyAtOnce});
    REQUIRE(opened.ok());
    store = std::move(opened).value();
    counted = std::make_unique<CountingStore>(*store);
    auto found = Catalog::open(*counted, f.clock);
    REQUIRE(found.ok());
    catalog = std::move(found).value();
  }
  void hold(bool hold) {
    drive.hold(hold);
    held = hold;
    held.notify_all();
  }

  // At the root, of layers that the disk takes notice of.
  NewSegment segment(TokenId first) const {
    NewSegment made = f.segment(tokens(6, first));
    made.row.stored_bytes = 0;
    for (std::size_t l = 0; l < made.layers.size(); ++l) {
      made.layers[l] = noise(first + l, kLayerBytes);
      made.row.layer_bytes[l] = kLayerBytes;
      made.row.stored_bytes += kLayerBytes;
    }
    return made;
  }
  // As a put does it: staged, then named.
  Status commit(const NewSegment& segment, Durability durability) {
    std::vector<Catalog::Layer> payload;
    for (const auto& layer : segment.layers) {
      const auto copy = std::make_shared<const Value>(layer);
      payload.push_back({*copy, catalog->stage({*copy, copy})});
    }
    return catalog->commit(segment.row, payload, durability);
  }
  bool is_found(const NewSegment& segment) const {
    return catalog->match(f.tenant, hash_path(f.root, segment.path, f.model.block_tokens)).size() ==
           1;
  }
  bool is_read(const NewSegment& segment) const {
    Value into(kLayerBytes);
    for (std::uint32_t l = 0; l < segment.layers.size(); ++l) {
      if (!catalog->read_layer(segment.row, l, into).ok() || into != segment.layers[l]) {
        return false;
      }
    }
    return true;
  }
};

bool is_over(const std::future<Status>& change) {
  return change.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

TEST_CASE("while the disk stands still what is in memory is served, and changes wait for it",
          "[unit][catalog]") {
  SlowDisk disk;
  auto arena = std::move(Arena::create(1 << 20)).value();
  HotTier hot(1 << 20);
  const NewSegment stored = disk.segment(1000), first = disk.segment(2000),
                   second = disk.segment(3000), third = disk.segment(4000),
                   synced = disk.segment(5000);
  REQUIRE(disk.commit(stored, Durability::kFsync).ok());
  const Catalog::Row row = disk.catalog->segment(disk.f.tenant, stored.row.id).value();
  auto buffer = std::move(arena->allocate(kLayerBytes)).value();
  std::ranges::copy(stored.layers[0], buffer->bytes().begin());
  hot.insert(row->id, 0, row, std::move(buffer));

  disk.hold(true);
  // As much as may be ahead of the disk is acknowledged, and read.
  REQUIRE(disk.commit(first, Durability::kMemory).ok());
  REQUIRE(disk.commit(second, Durability::kMemory).ok());
  CHECK(disk.is_read(first));
  CHECK(disk.is_read(second));

  // What is past it waits, and so does what is asked to be on the disk.
  const int begun = disk.counted->begun;
  auto past =
      std::async(std::launch::async, [&] { return disk.commit(third, Durability::kMemory); });
  while (disk.counted->begun == begun) std::this_thread::yield();
  auto to_disk =
      std::async(std::launch::async, [&] { return disk.commit(synced, Durability::kFsync); });
  for (int turn = 0; turn < 1000; ++turn) {  // Who would not wait has every chance to be done.
    std::this_thread::yield();
    // Look-ups and what is hot do not wait behind them: else this would never end.
    REQUIRE(disk.is_found(stored));
    REQUIRE(disk.is_found(first));
    const HotTier::Lease lease = hot.find(row->id, 0, row);
    REQUIRE(lease);
    REQUIRE(std::ranges::equal(lease->bytes(), stored.layers[0]));
    disk.catalog->count_hit(row->id);
    REQUIRE_FALSE(disk.is_found(third));
    REQUIRE_FALSE(disk.is_found(synced));
  }
  CHECK(disk.is_read(second));
  CHECK_FALSE(is_over(past));
  CHECK_FALSE(is_over(to_disk));

  disk.hold(false);
  CHECK(past.get().ok());
  CHECK(to_disk.get().ok());
  const auto all_read = [&] {
    for (const auto* each : {&stored, &first, &second, &third, &synced}) {
      if (!disk.is_found(*each) || !disk.is_read(*each)) return false;
    }
    return true;
  };
  CHECK(all_read());
  disk.catalog.reset();
  disk.store.reset();
  disk.open();
  CHECK(all_read());
}
