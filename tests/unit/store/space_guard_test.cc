// A disk that fills up, simulated by FaultyDrive: refusals, removals below the mark, and reclaimed
// space.
#include "cachesvc/store/space_guard.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <thread>

#include "cachesvc/store/extent_files.h"
#include "cachesvc/store/file_pool.h"
#include "cachesvc/store/rocksdb_store.h"
#include "tests/unit/store/scan_payload.h"
#include "tests/unit/store/store_machine.h"

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint64_t kMiB = 1u << 20;

// A store on a drive of 32 MiB: 2 MiB of reserve, a mark of 3 MiB, payload files of 1 MiB.
struct SmallMachine : Machine {
  std::shared_ptr<SpaceGuard> guard;
  std::chrono::seconds calm{10};
  SmallMachine() { drive.set_room(32 * kMiB); }
  std::unique_ptr<Store> open() {
    guard = SpaceGuard::open(drive.folder(), "/data", 0, calm).value();
    guard->restore_reserve();
    auto store = open_extent_store(
        std::make_unique<ForwardingRows>(rows), drive.folder(),
        {.file_bytes = guard->budget().file_bytes, .tidy_after = std::chrono::hours(1)}, guard);
    REQUIRE(store.ok());
    return std::move(store).value();
  }
  std::uint64_t free_bytes() { return guard->room().value().free_bytes; }
};

// Puts values of a fifth of a MiB until one is refused; returns the next number.
unsigned fill(Store& store, unsigned from = 0) {
  for (unsigned i = from;; ++i) {
    const Status status = put(store, std::to_string(i), noise(i, kMiB / 5));
    if (status.ok()) continue;
    CHECK(status.code() == StatusCode::kOutOfSpace);
    return i;
  }
}

}  // namespace

TEST_CASE("a disk's room is shared out by its size, within limits", "[unit][store]") {
  const DiskBudget tiny = DiskBudget::of(4 * kMiB), small = DiskBudget::of(320 * kMiB),
                   large = DiskBudget::of(1024 * 1024 * kMiB);
  CHECK(tiny.reserve_bytes == kMiB);
  CHECK(small.reserve_bytes == 20 * kMiB);
  CHECK(small.file_bytes == 5 * kMiB);
  CHECK(small.min_free_bytes == 25 * kMiB);
  CHECK(large.reserve_bytes == 64 * kMiB);
  CHECK(large.file_bytes == 256 * kMiB);
  CHECK(DiskBudget::of(320 * kMiB, 100 * kMiB).min_free_bytes == 100 * kMiB);
  // A mark below the reserve plus one payload file is raised.
  CHECK(DiskBudget::of(320 * kMiB, 1).min_free_bytes == 25 * kMiB);
  CHECK(DiskBudget::of(320 * kMiB, 24 * kMiB).min_free_bytes == 25 * kMiB);
}

TEST_CASE("payload stops at the mark, with the numbers, and goes on where there is room again",
          "[unit][store][space]") {
  SmallMachine machine;
  machine.drive.set_punches(GENERATE(true, false));
  const auto store = machine.open();
  const unsigned full = fill(*store);
  const Status refused = put(*store, "more", noise(1, kMiB / 5));
  CHECK_THAT(refused.message(),
             Contains("/data") && Contains(std::to_string(machine.free_bytes()) + " B free") &&
                 Contains(std::to_string(3 * kMiB) + " B that are kept free (min_free_bytes)"));
  CHECK(machine.free_bytes() >= 3 * kMiB);
  CHECK(store->health().low);  // space is free, but not for this size
  CHECK(store->health().min_free_bytes == 3 * kMiB);
  // Erases every second value, so that no file becomes empty without a move.
  for (unsigned i = 0; i < full; i += 2) REQUIRE(erase(*store, std::to_string(i)).ok());
  const std::uint64_t half = full / 2 * (kMiB / 5);
  while (machine.free_bytes() < half) std::this_thread::yield();  // reclaimed by a thread
  for (unsigned i = 1; i < full; i += 2) {
    REQUIRE(*store->read(std::to_string(i)) == noise(i, kMiB / 5));
  }
  CHECK_FALSE(store->health().low);
  CHECK(fill(*store, full) > full + full / 3);
}

TEST_CASE("a disk is low from the first refusal until puts are stored or much more is free",
          "[unit][store][space]") {
  SmallMachine machine;
  machine.calm = std::chrono::seconds(GENERATE(0, 3600));
  const auto store = machine.open();
  const auto leave_free = [&](std::uint64_t bytes) {
    machine.drive.set_room(machine.drive.bytes() + bytes);
  };
  leave_free(4 * kMiB);
  CHECK_FALSE(store->health().low);
  CHECK(put(*store, "large", noise(1, 2 * kMiB)).code() == StatusCode::kOutOfSpace);
  CHECK(store->health().low);  // although more than the mark is free
  // Other puts that fit end the low state, unless a refusal was a moment ago.
  CHECK(put(*store, "small", noise(1, 100)).ok());
  CHECK(store->health().low == (machine.calm.count() > 0));
  CHECK(put(*store, "large", noise(1, 2 * kMiB)).code() == StatusCode::kOutOfSpace);
  CHECK(store->health().low);
  leave_free(5 * kMiB);
  CHECK(store->health().low);
  leave_free(7 * kMiB);
  CHECK_FALSE(store->health().low);
}

TEST_CASE("what makes room is written below the mark, in the reserve at last",
          "[unit][store][space]") {
  SmallMachine machine;
  const auto store = machine.open();
  fill(*store);
  CHECK(store->health().reserve_bytes == 2 * kMiB);
  machine.drive.set_room(machine.drive.bytes() + kMiB / 2);  // something else takes the rest
  CHECK(store->health().low);
  CHECK(put(*store, "new", noise(1, 100)).code() == StatusCode::kOutOfSpace);
  const Value trimmed = noise(7, kMiB / 10);
  REQUIRE(store->write({{{Table::kPayload, "0", trimmed}}, {}, true}, Durability::kWal) ==
          Status());
  CHECK(*store->read("0") == trimmed);
  for (const char* key : {"1", "2"}) REQUIRE(erase(*store, key).ok());
  CHECK(put(*store, "new", noise(1, 100)).code() == StatusCode::kOutOfSpace);
  machine.drive.set_room(32 * kMiB);
  while (!put(*store, "new", noise(1, 100)).ok()) std::this_thread::yield();  // by a thread
  CHECK(store->health().reserve_bytes == 2 * kMiB);                           // restored first
}

TEST_CASE("rows alone stop later than payload, and removals last", "[unit][store][space]") {
  SmallMachine machine;
  machine.open().reset();
  SpaceGuard& guard = *machine.guard;
  const auto leave_free = [&](std::uint64_t bytes) {
    machine.drive.set_room(machine.drive.bytes() + bytes);
  };
  leave_free(2 * kMiB);
  CHECK(guard.admit(WriteUse::kPayload, 1).code() == StatusCode::kOutOfSpace);
  CHECK(guard.admit(WriteUse::kRows, 1) == Status());
  leave_free(kMiB / 2);
  CHECK(guard.admit(WriteUse::kRows, 1).code() == StatusCode::kOutOfSpace);
  CHECK(guard.room().value().reserve_bytes == 2 * kMiB);
  CHECK(guard.admit(WriteUse::kMakeRoom, 1) == Status());
  CHECK(guard.room().value().reserve_bytes < 2 * kMiB);  // a part is released for it
  CHECK(guard.room().value().free_bytes >= kMiB);
  Status refused;
  for (int i = 0; i < 5 && refused.ok(); ++i) {
    leave_free(0);
    refused = guard.admit(WriteUse::kMakeRoom, 1);
  }
  CHECK(guard.room().value().reserve_bytes == 0);
  CHECK(refused.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(refused.message(), Contains("free space on that disk"));
}

TEST_CASE("rows past all that the disk has free keep no space from coming back",
          "[unit][store][space]") {
  // The rows are in RocksDB, which flushes by itself; the payload is on the drive.
  const TestDir dir;
  SmallMachine machine;
  machine.guard = SpaceGuard::open(machine.drive.folder(), "/data").value();
  machine.guard->restore_reserve();
  auto rows = open_rocksdb_store(dir.path(), {.guard = machine.guard});
  REQUIRE(rows.ok());
  const auto store = open_extent_store(std::move(rows).value(), machine.drive.folder(),
                                       {.file_bytes = machine.guard->budget().file_bytes,
                                        .tidy_after = kTidyAtOnce},
                                       machine.guard)
                         .value();
  const unsigned full = fill(*store);
  const std::uint64_t taken = machine.drive.bytes();
  const Value row = noise(1, 32 << 10);
  for (std::uint64_t written = 0; written < 40 * kMiB; written += row.size()) {
    const std::string key = std::to_string(written / row.size() % 10);
    REQUIRE(store->write({{{Table::kSegments, key, row}}, {}, true}, Durability::kWal) == Status());
  }
  CHECK(store->harden() == Status());
  for (unsigned i = 0; i < full; ++i) REQUIRE(erase(*store, std::to_string(i)).ok());
  // A thread reclaims the space. If it never did, this test would exceed its time limit.
  while (machine.drive.bytes() > taken / 2) std::this_thread::yield();
}

TEST_CASE("no crash brings back a row whose bytes were punched out",
          "[unit][store][space][power]") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::mt19937_64 rng(seed);
    SmallMachine machine;
    std::vector<unsigned> kept;
    {
      const auto store = machine.open();
      const unsigned full = fill(*store);
      REQUIRE(store->harden().ok());
      const std::uint64_t before = machine.free_bytes();
      for (unsigned i = 0; i < full; ++i) {
        if (i % 2 == 0) REQUIRE(erase(*store, std::to_string(i)).ok());
        if (i % 2 != 0) kept.push_back(i);
      }
      // A thread reclaims the space, once no crash can undo the removals.
      while (machine.free_bytes() < before + full / 3 * (kMiB / 5)) std::this_thread::yield();
      machine.lose_power(rng);
    }
    CAPTURE(seed);
    const auto store = machine.open();
    for (const unsigned i : kept) {
      REQUIRE(*store->read(std::to_string(i)) == noise(i, kMiB / 5));
    }
    REQUIRE(scan_payload(*store, [&](std::string_view key, Bytes value) -> Status {
              const auto i = static_cast<unsigned>(std::stoul(std::string(key)));
              CHECK(std::ranges::equal(value, Bytes(noise(i, kMiB / 5))));
              return {};
            }) == Status());
  }
}

TEST_CASE("what is being read is not punched out", "[unit][store][space]") {
  FaultyDrive drive;
  const auto files = ExtentFiles::open(drive.folder(), {}, kMiB).value();
  const Value kept = noise(1, 10'000), freed = noise(2, 10'000);
  const std::vector<Bytes> values = {kept, freed};
  const auto places = files->append(values).value();
  std::optional<ExtentPin> pin = files->pin(places[1]);
  files->free(places[1]);
  CHECK(files->holes().empty());
  const FileBlocks read = pin->read().value();
  CHECK(std::ranges::equal(read.bytes(), Bytes(freed)));
  pin.reset();
  REQUIRE(files->holes().size() == 1);
  CHECK(files->holes()[0].offset == places[1].offset);
  const std::uint64_t before = drive.bytes();
  REQUIRE(files->punch(files->holes()) == Status());
  CHECK(drive.bytes() == before - 3 * 4096 + (3 * 4096 - 10'000));  // the last block is partial
  CHECK(files->holes().empty());
  CHECK(std::ranges::equal(files->pin(places[0]).read().value().bytes(), Bytes(kept)));
}

TEST_CASE("bytes that were punched out are not counted, nor after opening, nor twice",
          "[unit][store][space]") {
  FaultyDrive drive;
  std::vector<Extent> places;
  std::uint64_t left = 0;
  {
    const auto files = ExtentFiles::open(drive.folder(), {}, kMiB).value();
    const Value a = noise(1, 8192), b = noise(2, 40'960), c = noise(3, 8192);
    const std::vector<Bytes> values = {a, b, c};
    places = files->append(values).value();
    files->free(places[1]);
    const std::uint64_t all = files->stats().file_bytes;
    REQUIRE(files->punch(files->holes()) == Status());
    left = files->stats().file_bytes;
    CHECK(left == all - 40'960);
    CHECK(left == drive.bytes());
  }
  const std::vector<Extent> live = {places[0], places[2]};
  const auto files = ExtentFiles::open(drive.folder(), live, kMiB).value();
  CHECK(files->stats().file_bytes == left);
  REQUIRE(files->punch(files->holes()) == Status());
  CHECK(files->stats().file_bytes == left);
  files->free(places[0]);
  REQUIRE(files->punch(files->holes()) == Status());
  CHECK(files->stats().file_bytes == left - 8192);
}

TEST_CASE("values that lie over one another are not punched out", "[unit][store][space]") {
  FaultyDrive drive;
  std::vector<Extent> places;
  {
    const auto files = ExtentFiles::open(drive.folder(), {}, kMiB).value();
    const Value a = noise(1, 10'000), b = noise(2, 10'000), c = noise(3, 10'000);
    const std::vector<Bytes> values = {a, b, c};
    places = files->append(values).value();
  }
  const std::vector<Extent> live = {places[0], places[2]};
  CHECK(ExtentFiles::open(drive.folder(), live, kMiB).value()->holes().size() == 1);
  // A damaged row gives a value a place that overlaps another value, so it is unknown which bytes
  // are dead.
  const std::vector<Extent> rotten = {places[0], {places[0].file, places[0].offset, 30'000}};
  const auto files = ExtentFiles::open(drive.folder(), rotten, kMiB).value();
  files->free(rotten[1]);
  CHECK(files->holes().empty());
}

TEST_CASE("files are open a bounded number at a time, and all are read", "[unit][store]") {
  FaultyDrive drive;
  FilePool pool(drive.folder(), 3);
  std::vector<std::shared_ptr<FilePool::Handle>> handles;
  for (unsigned i = 0; i < 10; ++i) {
    const Value value = noise(i, 100);
    const Bytes bytes = value;
    handles.push_back(pool.create(std::to_string(i)).value());
    REQUIRE(handles.back()->use().value()->write_at(0, {&bytes, 1}).ok());
    CHECK(drive.open_files() <= 3);
  }
  for (unsigned round = 0; round < 3; ++round) {
    for (unsigned i = 0; i < 10; ++i) {
      Value read(100);
      REQUIRE(handles[i]->use().value()->read_at(0, read).ok());
      CHECK(read == noise(i, 100));
      CHECK(drive.open_files() <= 3);
    }
  }
  // A held file stays open in addition to the others, and so does a file in use.
  handles[0]->hold(true);
  const auto used = handles[0]->use().value();
  for (unsigned i = 1; i < 10; ++i) REQUIRE(handles[i]->use().ok());
  REQUIRE(drive.folder()->remove("0").ok());
  CHECK(handles[0]->use().ok());
  handles.clear();
  CHECK(drive.open_files() == 1);
}

TEST_CASE("of many payload files a bounded number is open, also while none is synced",
          "[unit][store]") {
  FaultyDrive drive;
  const auto files = ExtentFiles::open(drive.folder(), {}, 2 * kFileBlockBytes).value();
  std::vector<Extent> places;
  for (unsigned i = 0; i < 3 * limits::kOpenPayloadFilesMax; ++i) {
    const Value value = noise(i, 100);
    const Bytes bytes = value;
    places.push_back(files->append({&bytes, 1}).value().front());
    REQUIRE(drive.open_files() <= limits::kOpenPayloadFilesMax);
  }
  CHECK(files->stats().files == places.size());  // one value each
  CHECK(drive.syncs() > 0);
  for (unsigned i = 0; i < places.size(); ++i) {
    const FileBlocks read = files->pin(places[i]).read().value();
    REQUIRE(std::ranges::equal(read.bytes(), Bytes(noise(i, 100))));
  }
  CHECK(drive.open_files() <= limits::kOpenPayloadFilesMax);
}
