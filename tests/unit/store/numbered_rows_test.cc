// Opening a store detects missing acknowledged changes, whatever was damaged, but does not report
// data lost in a crash as damage.
#include "cachesvc/store/numbered_rows.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/unit/store/numbered_disk.h"

using namespace precis;
using namespace precis::testing;
namespace fs = std::filesystem;

namespace {

// Waits until the compactor has started and completed a search for space. Waits for two, because
// one may have started before.
void let_tidy(Store& store) {
  const std::uint64_t before = store.stats().tidy_passes;
  while (store.stats().tidy_passes < before + 2) {
    REQUIRE(put(store, "freed", value_of(98)).ok());
    REQUIRE(erase(store, "freed").ok());
    std::this_thread::yield();
  }
}

// Opens the store after damage. Either everything is present, or the loss is reported and no
// payload is deleted. Returns whether something was lost.
bool is_told(const Disk& disk) {
  const auto before = disk.payload();
  const auto store = disk.open();
  const int left = values_left(*store);
  const std::optional<RecoveryDoubt> doubt = store->doubt();
  if (left == kValues) {
    CHECK_FALSE(doubt);
    return false;
  }
  REQUIRE(doubt);
  CHECK(doubt->lost_changes >= static_cast<std::uint64_t>(kValues - left));
  CHECK_FALSE(doubt->record_lost);
  CHECK(store->stats().unclaimed_bytes >= static_cast<std::uint64_t>(kValues - left) * 4096);
  REQUIRE(put(*store, "more", value_of(99), Durability::kFsync).ok());  // the store works
  let_tidy(*store);
  for (const auto& [name, size] : before) REQUIRE(disk.payload()[name] == size);
  return true;
}

}  // namespace

TEST_CASE("a flipped bit in the newest log loses nothing in silence, and no payload",
          "[unit][store]") {
  Disk disk;
  disk.fill(GENERATE(Durability::kFsync, Durability::kWal));
  disk.save_copy();
  const std::uint64_t size = fs::file_size(disk.newest(".log"));
  int lost = 0;
  constexpr std::uint64_t kPlaces = 40;
  for (std::uint64_t i = 0; i < kPlaces; ++i) {
    const std::uint64_t at = i * size / kPlaces;
    CAPTURE(at, size);
    disk.restore_copy();
    flip_bit(disk.newest(".log"), at, static_cast<unsigned>(i % 8));
    lost += is_told(disk) ? 1 : 0;
  }
  CHECK(lost > 30);  // most of the log is acknowledged changes
}

TEST_CASE("a log that is gone, empty or cut loses nothing in silence, and no payload",
          "[unit][store]") {
  Disk disk;
  disk.fill();
  const fs::path log = disk.newest(".log");
  const int how = GENERATE(0, 1, 2);
  if (how == 0) fs::remove(log);
  if (how == 1) fs::resize_file(log, 0);
  if (how == 2) fs::resize_file(log, fs::file_size(log) / 2);
  CHECK(is_told(disk));
}

TEST_CASE("a table that is gone is refused, and no payload goes", "[unit][store]") {
  Disk disk;
  disk.fill();
  disk.open().reset();  // opening turns the log into tables
  const auto before = disk.payload();
  fs::remove(disk.newest(".sst"));
  for (int start = 0; start < 2; ++start) {
    CHECK(disk.try_open().status().code() == StatusCode::kCorruption);
    CHECK(disk.payload() == before);
  }
}

TEST_CASE("a list of tables that is cut is refused, or its loss is told, and no payload goes",
          "[unit][store]") {
  Disk disk;
  disk.fill();
  disk.open().reset();
  disk.save_copy();
  int opened = 0;
  constexpr unsigned kCuts = 60;
  for (unsigned i = 0; i < kCuts; ++i) {
    CAPTURE(i);
    disk.restore_copy();
    fs::path list;
    for (const auto& file : fs::directory_iterator(disk.path())) {
      if (file.path().filename().string().starts_with("MANIFEST")) list = file.path();
    }
    fs::resize_file(list, fs::file_size(list) * i / kCuts);
    const auto before = disk.payload();
    const auto store = disk.try_open();
    if (store.ok()) {
      ++opened;
      if (values_left(**store) < kValues) REQUIRE((*store)->doubt());
      let_tidy(**store);
    }
    for (const auto& [name, size] : before) REQUIRE(disk.payload()[name] == size);
  }
  CHECK(opened > 0);
}

TEST_CASE("a torn tail behind what was acknowledged is no damage", "[unit][store]") {
  Disk disk;
  std::uint64_t acknowledged = 0;
  {
    const auto store = disk.open();
    for (int i = 0; i < kValues; ++i) {
      put_with_rows(*store, i, Durability::kFsync);
    }
    acknowledged = fs::file_size(disk.newest(".log"));
    fs::copy_file(disk.path("acknowledged"), disk.dir.path() + "/record");
    REQUIRE(put(*store, "tail", value_of(50), Durability::kWal).ok());
  }
  disk.save_copy();
  const std::uint64_t size = fs::file_size(disk.newest(".log"));
  REQUIRE(size > acknowledged);
  // A crash of the process may lose a change that the record does not have. A crash of the machine
  // may also lose a change at wal that the record has.
  const bool power = GENERATE(true, false);
  if (power) disk.boot = "second";
  for (std::uint64_t at = acknowledged; at <= size; ++at) {
    CAPTURE(at, size, power);
    disk.restore_copy();
    fs::resize_file(disk.newest(".log"), at);
    if (!power) {
      fs::copy_file(disk.dir.path() + "/record", disk.path("acknowledged"),
                    fs::copy_options::overwrite_existing);
    }
    const auto store = disk.open();
    REQUIRE_FALSE(store->doubt());
    REQUIRE(values_left(*store) == kValues);
  }
}

TEST_CASE("what was acknowledged at wal may go with the power, and with nothing else",
          "[unit][store]") {
  Disk disk;
  disk.fill(Durability::kWal);
  disk.boot = GENERATE("first", "second");
  fs::resize_file(disk.newest(".log"), fs::file_size(disk.newest(".log")) / 2);
  CHECK(disk.open()->doubt().has_value() == (disk.boot == "first"));
}

TEST_CASE("a doubt stays until it is accepted, then what was kept for it is freed",
          "[unit][store]") {
  Disk disk;
  disk.fill();
  fs::remove(disk.newest(".log"));
  RecoveryDoubt doubt;
  for (int start = 0; start < 3; ++start) {
    const auto store = disk.open();
    REQUIRE(store->doubt());
    if (start == 0) doubt = *store->doubt();
    CHECK(*store->doubt() == doubt);
    REQUIRE(put(*store, "new", value_of(start), Durability::kFsync).ok());
  }
  {
    const auto store = disk.open();
    REQUIRE(store->accept_loss().ok());
    CHECK_FALSE(store->doubt());
    // Waits until unclaimed payload is gone. If the store kept it, this would never end.
    while (store->stats().unclaimed_bytes > 64 << 10) std::this_thread::yield();
  }
  CHECK_FALSE(disk.open()->doubt());
}

TEST_CASE("losses that follow one another add up", "[unit][store]") {
  Disk disk;
  disk.fill();
  fs::remove(disk.newest(".log"));
  const std::uint64_t first = disk.open()->doubt().value().lost_changes;
  disk.fill();
  fs::remove(disk.newest(".log"));
  CHECK(disk.open()->doubt().value().lost_changes >= first + kValues);
}

TEST_CASE("a record that is gone or damaged is told, and no payload goes", "[unit][store]") {
  Disk disk;
  disk.fill();
  if (GENERATE(true, false)) {
    fs::remove(disk.path("acknowledged"));
  } else {
    std::ofstream(disk.path("acknowledged")) << std::string(8192, 'x');
  }
  for (int start = 0; start < 2; ++start) {
    const auto store = disk.open();
    CHECK(values_left(*store) == kValues);
    REQUIRE(store->doubt());
    CHECK(store->doubt()->record_lost);
  }
  REQUIRE(disk.open()->accept_loss().ok());
  CHECK_FALSE(disk.open()->doubt());
}

TEST_CASE("a bit that flips in the record raises no false alarm, or says that it is damaged",
          "[unit][store]") {
  Disk disk;
  disk.fill();
  disk.save_copy();
  for (std::uint64_t at = 0; at < 8192; at += 53) {
    disk.restore_copy();
    flip_bit(disk.path("acknowledged"), at, static_cast<unsigned>(at % 8));
    const auto store = disk.open();
    REQUIRE(values_left(*store) == kValues);
    REQUIRE((!store->doubt() || store->doubt()->record_lost));
  }
}

TEST_CASE("a store of an earlier release gets a record, and no doubt", "[unit][store]") {
  Disk disk;
  {
    auto rows = open_rocksdb_store(disk.dir.path() + "/store");
    REQUIRE(rows.ok());
    REQUIRE((*rows)->write({{{Table::kModels, "old", value_of(1)}}, {}}, Durability::kFsync).ok());
  }
  CHECK_FALSE(disk.open()->doubt());
  disk.fill();
  fs::remove(disk.newest(".log"));
  CHECK(disk.open()->doubt());
}

TEST_CASE("who asks for the doubt does not wait for a disk that stands still", "[unit][store]") {
  // A disk whose writes wait until they are released.
  struct HeldRows final : ForwardingRows {
    using ForwardingRows::ForwardingRows;
    Status write(const RowBatch& batch, Durability durability) override {
      began = true;
      began.notify_all();
      held.wait(true);
      return ForwardingRows::write(batch, durability);
    }
    std::atomic<bool> held = true, began = false;
  };
  const TestDir dir;
  MemoryRows memory;
  auto made = std::make_unique<HeldRows>(memory);
  HeldRows& rows = *made;
  const auto store = number_rows(std::move(made), dir.path() + "/acknowledged").value();
  const Value row = value_of(1);
  std::thread writer([&] {
    CHECK(store->write({{{Table::kModels, "a", row}}, {}}, Durability::kFsync).ok());
  });
  rows.began.wait(false);
  CHECK_FALSE(store->doubt());  // on this thread: if doubt() waited, the test would never end
  rows.held = false;
  rows.held.notify_all();
  writer.join();
}
