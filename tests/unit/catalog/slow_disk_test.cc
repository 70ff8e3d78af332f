// The disk blocks: data in memory is served, changes wait, and all changes succeed once the disk
// continues.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "cachesvc/base/arena.h"
#include "cachesvc/store/hot_tier.h"
#include "tests/unit/catalog/all_rows.h"
#include "tests/unit/catalog/catalog_fixture.h"
#include "tests/unit/store/store_machine.h"

using namespace precis;
using namespace precis::testing;

namespace {

// Rows on the same disk as the payload: writes to the log block while the disk is held.
class HeldRows final : public ForwardingRows {
 public:
  HeldRows(RowStore& rows, const std::atomic<bool>& held) : ForwardingRows(rows), held_(held) {}
  Status write(const RowBatch& batch, Durability durability) override {
    if (durability != Durability::kMemory) held_.wait(true);
    return ForwardingRows::write(batch, durability);
  }
  Status harden() override {
    held_.wait(true);
    return ForwardingRows::harden();
  }

 private:
  const std::atomic<bool>& held_;
};

// Counts the payload values that it receives.
class CountingStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  std::shared_ptr<StagedValue> stage(SharedBytes value) override {
    ++staged;
    return ForwardingStore::stage(std::move(value));
  }
  std::atomic<std::size_t> staged = 0;
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
    auto opened = open_extent_store(std::make_unique<HeldRows>(f.store.rows, held), drive.folder(),
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

  // A segment at the root, with layers large enough to count for the write-behind bound.
  NewSegment segment(TokenId first) const {
    NewSegment made = f.segment(tokens(6, first));
    give_layers(made);
    return made;
  }
  static void give_layers(NewSegment& made) {
    made.row.stored_bytes = 0;
    for (std::size_t l = 0; l < made.layers.size(); ++l) {
      made.layers[l] = noise(made.path.back() + l, kLayerBytes);
      made.row.layer_bytes[l] = kLayerBytes;
      made.row.stored_bytes += kLayerBytes;
    }
  }
  // Commits as a put does: stages the layers, then commits the row that names them.
  Status commit(const NewSegment& segment, Durability durability) {
    std::vector<Catalog::Layer> payload;
    for (const auto& layer : segment.layers) {
      const auto copy = std::make_shared<const Value>(layer);
      payload.push_back({*copy, catalog->stage({*copy, copy})});
    }
    return catalog->commit(segment.row, payload, durability);
  }
  bool is_found(const NewSegment& segment) const {
    const TokenPath path = hash_path(f.root, segment.path, f.model.block_tokens);
    return catalog->match(f.tenant, path, 0).size() == 1;
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
  HotTier hot(1 << 20, make_s3_fifo_policy);
  const NewSegment stored = disk.segment(1000), first = disk.segment(2000),
                   second = disk.segment(3000), third = disk.segment(4000),
                   synced = disk.segment(5000);
  REQUIRE(disk.commit(stored, Durability::kFsync).ok());
  const Catalog::Row row = disk.catalog->segment(disk.f.tenant, stored.row.id).value();
  auto buffer = std::move(arena->allocate(kLayerBytes)).value();
  std::ranges::copy(stored.layers[0], buffer->bytes().begin());
  hot.insert(row->tenant, row->id, 0, row, std::move(buffer));

  disk.hold(true);
  // Commits up to the write-behind bound are acknowledged and can be read.
  REQUIRE(disk.commit(first, Durability::kMemory).ok());
  REQUIRE(disk.commit(second, Durability::kMemory).ok());
  CHECK(disk.is_read(first));
  CHECK(disk.is_read(second));

  // The next commit evicts the oldest segment; a commit that must reach the disk waits.
  REQUIRE(disk.commit(third, Durability::kMemory).ok());
  const std::size_t all_staged = disk.counted->staged + synced.layers.size();
  auto to_disk =
      std::async(std::launch::async, [&] { return disk.commit(synced, Durability::kWal); });
  // Loops until the store has all payload of that commit, and for some turns more.
  for (int turns = 0; turns < 10;) {
    if (disk.counted->staged == all_staged) ++turns;
    std::this_thread::yield();
    // Lookups and hot layers do not wait for the disk; otherwise this loop would never end.
    REQUIRE(disk.is_found(stored));
    REQUIRE(disk.is_found(third));
    REQUIRE_FALSE(disk.is_found(first));
    const HotTier::Lease lease = hot.find(row->id, 0, row);
    REQUIRE(lease);
    REQUIRE(std::ranges::equal(lease->bytes(), stored.layers[0]));
    disk.catalog->count_hit(row->id);
    REQUIRE_FALSE(disk.is_found(synced));
  }
  CHECK(disk.is_read(second));
  CHECK_FALSE(is_over(to_disk));

  disk.hold(false);
  CHECK(to_disk.get().ok());
  const auto all_read = [&] {
    for (const auto* each : {&stored, &second, &third, &synced}) {
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

TEST_CASE("a change at memory does not wait for the disk to keep what is leased",
          "[unit][catalog]") {
  SlowDisk disk;
  const NewSegment made = disk.segment(1000);
  disk.hold(true);
  REQUIRE(disk.commit(made, Durability::kMemory).ok());
  const Catalog::Row row = disk.catalog->segment(disk.f.tenant, made.row.id).value();
  REQUIRE(disk.catalog->leases().grant({&row, 1}, 1000) == 1000);
  NewSegment trimmed = made;
  trimmed.row.trimmed = Budget::entries(1);
  --trimmed.row.plan.counts[0];
  std::vector<Catalog::Layer> payload;
  for (const auto& layer : trimmed.layers) {
    const auto copy = std::make_shared<const Value>(layer);
    payload.push_back({*copy, disk.catalog->stage({*copy, copy})});
  }
  REQUIRE(disk.catalog->trim(*row, trimmed.row, payload, Durability::kMemory).value());
  CHECK(disk.catalog->leases().bytes() == 0);  // the trim has ended the lease
}

TEST_CASE("commits at memory go on past what may wait for the disk, and the oldest are forgotten",
          "[unit][catalog]") {
  SlowDisk disk;
  const NewSegment durable = disk.segment(1000);
  REQUIRE(disk.commit(durable, Durability::kFsync).ok());
  disk.hold(true);
  std::vector<NewSegment> made;
  for (TokenId first = 2000; first < 2020; ++first) {  // on this thread, so no commit waits
    made.push_back(disk.segment(first * 10));
    REQUIRE(disk.commit(made.back(), Durability::kMemory).ok());
  }
  // Two segments have room.
  CHECK(disk.catalog->dropped_segments() == made.size() - 2);
  CHECK(disk.catalog->totals().segments == 3);
  CHECK(models_of(*disk.catalog, disk.f.tenant)[0].segments == 3);
  for (std::size_t i = 0; i < made.size(); ++i) {
    CHECK(disk.is_found(made[i]) == (i + 2 >= made.size()));
  }
  const Status gone = disk.catalog->segment(disk.f.tenant, made[0].row.id).status();
  CHECK(gone.code() == StatusCode::kNotFound);
  // A child of a dropped segment is refused as kNotFound.
  NewSegment child = disk.segment(2000 * 10);
  child.row.id.bytes[0] ^= 1;
  child.row.parent = made[0].row.id;
  CHECK(disk.commit(child, Durability::kMemory).code() == StatusCode::kNotFound);
  disk.hold(false);
  // A dropped segment can be put again.
  REQUIRE(disk.commit(made[0], Durability::kFsync).ok());
  CHECK(disk.is_read(made[0]));
  disk.catalog.reset();
  disk.store.reset();
  disk.open();
  CHECK(disk.is_read(durable));
  CHECK(disk.is_read(made[0]));
  CHECK(disk.is_read(made.back()));
  CHECK_FALSE(disk.is_found(made[1]));
  CHECK(disk.catalog->totals().quarantined_segments == 0);
}

TEST_CASE("a session whose tip gives way goes back to what is left below it", "[unit][catalog]") {
  SlowDisk disk;
  const NewSegment root = disk.segment(1000);
  NewSegment child = disk.f.segment(tokens(12, 1000), &root);
  disk.give_layers(child);
  REQUIRE(disk.commit(root, Durability::kFsync).ok());
  msg::OpenSession open;
  open.name = "talk";
  REQUIRE(disk.catalog->open_session(disk.f.tenant, open).ok());
  disk.hold(true);
  REQUIRE(disk.commit(child, Durability::kMemory).ok());
  msg::AdvanceSession advance;
  advance.name = "talk";
  advance.tip = child.row.id;
  REQUIRE(disk.catalog->advance_session(disk.f.tenant, advance).ok());
  const auto tip = [&] { return disk.catalog->session(disk.f.tenant, "talk").value().tip; };
  CHECK(tip() == child.row.id);
  for (TokenId first = 5000; first < 5030; first += 10) {
    REQUIRE(disk.commit(disk.segment(first), Durability::kMemory).ok());
  }
  CHECK(disk.catalog->segment(disk.f.tenant, child.row.id).status().code() ==
        StatusCode::kNotFound);
  CHECK(tip() == root.row.id);
  disk.hold(false);
  disk.catalog.reset();
  disk.store.reset();
  disk.open();
  CHECK(tip() == root.row.id);
}
