// Properties of the store on disk beyond the contract: the places of payload, its state after
// crashes, full disks and damaged files, and reclaimed space.
#include "cachesvc/store/extent_store.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "cachesvc/store/extent_row.h"
#include "tests/unit/store/store_machine.h"
#include "tests/unit/store/test_dir.h"

using namespace precis;
using namespace precis::testing;

TEST_CASE("payload lies in files of its own, on whole blocks, and no row holds it",
          "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  const Value a = noise(1, 5000), b = noise(2, 1);
  REQUIRE(put(*store, "a", a).ok());
  REQUIRE(put(*store, "b", b).ok());
  REQUIRE(machine.drive.names().size() == 1);
  CHECK(machine.drive.size(machine.drive.names().front()) == 4096 + 8192 + 1);
  CHECK(machine.rows.get(Table::kPayload, "a")->size() < 64);
}

TEST_CASE("after opening payload goes to a new file, and files that nobody means are removed",
          "[unit][store]") {
  Machine machine;
  REQUIRE(put(*machine.open(), "a", noise(1, 100)).ok());
  const auto first = machine.drive.names();
  {
    const auto store = machine.open();
    CHECK(machine.drive.names() == first);
    REQUIRE(put(*store, "b", noise(2, 100)).ok());
    CHECK(machine.drive.names().size() == 2);
    REQUIRE(erase(*store, "a").ok());
  }
  const auto store = machine.open();
  CHECK(*store->read("b") == noise(2, 100));
  while (machine.drive.names().size() > 1) std::this_thread::yield();  // removed by a thread
}

TEST_CASE("what a store finds when it opens survives a crash of the machine",
          "[unit][store][power]") {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937_64 rng(seed);
    Machine machine;
    REQUIRE(put(*machine.open(), "a", noise(1, 20'000), Durability::kWal).ok());
    machine.open().reset();  // as after SIGKILL: written bytes may be in the page cache only
    machine.lose_power(rng);
    CAPTURE(seed);
    const auto left = machine.open()->read("a");
    REQUIRE(left.status() == Status());
    REQUIRE(*left == noise(1, 20'000));
  }
}

TEST_CASE("removing everything empties the disk, also of the file that was being written",
          "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  for (unsigned i = 0; i < 30; ++i) REQUIRE(put(*store, std::to_string(i), noise(i, 9000)).ok());
  for (unsigned i = 0; i < 30; ++i) REQUIRE(erase(*store, std::to_string(i)).ok());
  while (machine.drive.bytes() > 0) std::this_thread::yield();  // reclaimed by a thread
  REQUIRE(put(*store, "a", noise(1, 9000)).ok());
  CHECK(*store->read("a") == noise(1, 9000));
}

TEST_CASE("the space of removed and replaced payload comes back", "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  std::map<std::string, Value> kept;
  for (unsigned i = 0; i < 400; ++i) {
    const std::string key = std::to_string(i % 100);
    kept[key] = noise(i, 3000);
    REQUIRE(put(*store, key, kept[key]).ok());
    if (i % 3 == 0) {
      REQUIRE(erase(*store, key).ok());
      kept.erase(key);
    }
  }
  // A thread reclaims the space. If it never did, this test would exceed its time limit. Each value
  // takes a block, at most half of a complete file is dead, and one file is still appended to.
  const std::uint64_t most = 2 * kept.size() * 4096 + 2 * kFileBytes;
  while (machine.drive.bytes() > most) std::this_thread::yield();
  for (const auto& [key, value] : kept) CHECK(*store->read(key) == value);
}

TEST_CASE("a full disk refuses payload and changes nothing; with room again the store goes on",
          "[unit][store]") {
  Machine machine;
  const auto durability = GENERATE(Durability::kMemory, Durability::kWal, Durability::kFsync);
  const Value before = noise(1, 10'000), after = noise(2, 10'000);
  {
    const auto store = machine.open();
    REQUIRE(put(*store, "key", before, durability).ok());
    machine.drive.set_room(machine.drive.bytes() + 100);
    for (int i = 0; i < 20; ++i) {
      CHECK(put(*store, "key", after, durability).code() == StatusCode::kOutOfSpace);
    }
    CHECK(*store->read("key") == before);
    machine.drive.set_room(1u << 30);
    REQUIRE(put(*store, "key", after, durability).ok());
  }
  CHECK(*machine.open()->read("key") == after);
}

TEST_CASE("space that counts no more waits to be tidied up, but not where the disk is full",
          "[unit][store]") {
  Machine machine;
  machine.tidy_after = std::chrono::hours(1);
  const auto store = machine.open();
  const auto durability = GENERATE(Durability::kMemory, Durability::kWal);
  REQUIRE(put(*store, "gone", noise(1, 10'000)).ok());
  REQUIRE(erase(*store, "gone").ok());
  // Fails if the store does not wait. If it waits, this passes however slow the machine is.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(machine.drive.bytes() > 10'000);
  machine.drive.set_room(machine.drive.bytes());
  (void)stage_and_put(*store, "new", shared_noise(2, 10'000), durability);  // may be deferred
  while (machine.drive.bytes() > 10'000) std::this_thread::yield();         // reclaimed by a thread
}

TEST_CASE("on a disk that was full what is removed makes room at once, until something is written",
          "[unit][store]") {
  Machine machine;
  machine.tidy_after = std::chrono::hours(1);
  const auto store = machine.open();
  REQUIRE(put(*store, "old", noise(1, 10'000)).ok());
  machine.drive.set_room(machine.drive.bytes());
  CHECK(put(*store, "new", noise(2, 10'000)).code() == StatusCode::kOutOfSpace);
  REQUIRE(erase(*store, "old").ok());
  while (machine.drive.bytes() > 0) std::this_thread::yield();  // reclaimed by a thread
  REQUIRE(put(*store, "new", noise(2, 10'000)).ok());
}

TEST_CASE("a store that is closed soon after a removal makes room when it opens again",
          "[unit][store]") {
  Machine machine;
  machine.tidy_after = std::chrono::hours(1);
  {
    const auto store = machine.open();
    REQUIRE(put(*store, "gone", noise(1, 10'000)).ok());
    REQUIRE(erase(*store, "gone").ok());
  }
  const auto store = machine.open();
  while (machine.drive.bytes() > 0) std::this_thread::yield();  // reclaimed by a thread
}

TEST_CASE("a batch whose rows fail leaves no payload behind", "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  const std::uint64_t before = store->stats().payload_bytes;
  machine.rows.fail_next_write(Status::out_of_space("full"));
  CHECK(put(*store, "key", noise(1, 10'000)).code() == StatusCode::kOutOfSpace);
  CHECK(store->read("key").status().code() == StatusCode::kNotFound);
  REQUIRE(store->harden().ok());  // now the writer is idle
  CHECK(store->stats().payload_bytes == before);
}

TEST_CASE("a sync that failed is not forgotten: fsync and harden go on failing", "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  REQUIRE(put(*store, "a", noise(1, 100)).ok());
  machine.drive.fail_after(0, Status::unavailable("faulty drive: EIO"));
  CHECK(store->harden().code() == StatusCode::kUnavailable);
  machine.drive.fail_after(1u << 30, {});
  CHECK(store->harden().code() == StatusCode::kUnavailable);
  CHECK(put(*store, "b", noise(2, 100), Durability::kFsync).code() == StatusCode::kUnavailable);
  CHECK(put(*store, "c", noise(3, 100)).ok());
  REQUIRE(erase(*store, "a").ok());  // removes the value that may be lost
  CHECK(put(*store, "b", noise(2, 100), Durability::kFsync).ok());
  CHECK(store->harden().ok());
}

TEST_CASE("a folder whose sync failed once is not believed the next time", "[unit][store]") {
  const auto sync_another = [](Store& store) {
    return put(store, "b", noise(2, 100), Durability::kFsync);
  };
  std::uint64_t operations = 0;  // the last one is the folder's sync
  {
    Machine machine;
    const auto store = machine.open();
    REQUIRE(put(*store, "a", noise(1, 100)).ok());
    operations = machine.drive.operations();
    REQUIRE(sync_another(*store).ok());
    operations = machine.drive.operations() - operations;
  }
  Machine machine;
  const auto store = machine.open();
  REQUIRE(put(*store, "a", noise(1, 100)).ok());
  machine.drive.fail_after(operations - 1, Status::unavailable("faulty drive: EIO"));
  CHECK(sync_another(*store).code() == StatusCode::kUnavailable);
  machine.drive.fail_after(1u << 30, {});
  CHECK(sync_another(*store).code() == StatusCode::kUnavailable);  // "a"'s file may be lost
  REQUIRE(erase(*store, "a").ok());
  CHECK(sync_another(*store).ok());
}

TEST_CASE("where nothing can be moved, files that are empty still go", "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  REQUIRE(put(*store, "kept", noise(0, 10'000)).ok());
  unsigned gone = 5;  // with "kept", they fill a file (sparse without them) and begin another
  const auto put_them = [&] {
    for (unsigned i = 0; i < gone; ++i) {
      REQUIRE(put(*store, std::to_string(i), noise(i, 10'000)).ok());
    }
  };
  SECTION("for the disk is full") {
    put_them();
    machine.drive.set_room(machine.drive.bytes());
  }
  SECTION("for what was not synced may be lost") {
    machine.drive.fail_after(0, Status::unavailable("faulty drive: EIO"));
    CHECK(store->harden().code() == StatusCode::kUnavailable);
    machine.drive.fail_after(1u << 30, {});
    gone = 8;  // they fill one file and begin another
    put_them();
  }
  REQUIRE(machine.drive.bytes() > kFileBytes);
  for (unsigned i = 0; i < gone; ++i) REQUIRE(erase(*store, std::to_string(i)).ok());
  // A thread removes the empty files. If it never did, this test would exceed its time limit.
  while (machine.drive.bytes() > kFileBytes) std::this_thread::yield();
  CHECK(*store->read("kept") == noise(0, 10'000));
}

TEST_CASE("a move for which there is no room is not tried again and again", "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  for (unsigned i = 0; i < 10; ++i) {  // they fill two files
    REQUIRE(put(*store, std::to_string(i), noise(i, 10'000)).ok());
  }
  machine.drive.set_room(machine.drive.bytes() + 2 * 4096);  // enough for the start of a file
  for (unsigned i = 1; i < 5; ++i) REQUIRE(erase(*store, std::to_string(i)).ok());
  // If the store never stopped trying, this test would exceed its time limit.
  for (std::uint64_t before = 0; before != machine.drive.operations();) {
    before = machine.drive.operations();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  machine.drive.set_room(1u << 30);
  REQUIRE(erase(*store, "5").ok());  // frees more space, so the move is retried
  while (machine.drive.bytes() > 2 * kFileBytes) std::this_thread::yield();
  CHECK(*store->read("0") == noise(0, 10'000));
}

TEST_CASE("what is to be synced while files are synced shares the next sync", "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  const std::uint64_t before = machine.drive.syncs();
  const auto sync_put = [&](const std::string& key, const std::shared_ptr<const Value>& value) {
    return stage_and_put(*store, key, value, Durability::kFsync);
  };
  machine.drive.hold_syncs(true);
  std::vector<std::future<Status>> written;
  written.push_back(
      std::async(std::launch::async, [&] { return sync_put("0", shared_noise(0, 10)); }));
  while (machine.drive.syncs() == before) std::this_thread::yield();
  // Seven values, staged after the sync in progress began.
  std::vector<std::shared_ptr<const Value>> values;
  std::vector<std::shared_ptr<StagedValue>> staged;
  for (std::uint64_t i = 1; i < 8; ++i) {
    values.push_back(shared_noise(i, 10));
    staged.push_back(store->stage({*values.back(), values.back()}));
    REQUIRE(staged.back()->wait().ok());
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    written.push_back(std::async(std::launch::async, [&, i] {
      return store->write({{{Table::kPayload, std::to_string(i + 1), *values[i], staged[i]}}, {}},
                          Durability::kFsync);
    }));
  }
  machine.drive.hold_syncs(false);
  for (auto& each : written) CHECK(each.get().ok());
  CHECK(machine.drive.syncs() == before + 2);
  std::mt19937_64 rng(1);
  staged.clear();
  machine.lose_power(rng);
  const auto again = machine.open();
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(*again->read(std::to_string(i + 1)) == *values[i]);
  }
}

TEST_CASE("a payload file of a newer format is refused, and left as it is", "[unit][store]") {
  Machine machine;
  REQUIRE(put(*machine.open(), "a", noise(1, 100)).ok());
  const std::string name = machine.drive.names().front();
  std::array<std::byte, 24> header;  // magic, format, number, their XXH3-64
  const auto file = machine.drive.folder()->open(name).value();
  REQUIRE(file->read_at(0, header).ok());
  const auto write_format = [&](std::uint32_t format) {
    std::memcpy(header.data() + 8, &format, sizeof format);
    const std::uint64_t checksum = XXH3_64bits(header.data(), 16);
    std::memcpy(header.data() + 16, &checksum, sizeof checksum);
    const Bytes value = header;
    REQUIRE(file->write_at(0, {&value, 1}).ok());
  };
  write_format(2);
  const auto refused = machine.try_open();
  CHECK(refused.status().code() == StatusCode::kVersionMismatch);
  CHECK(refused.status().message().find(name) != std::string::npos);
  write_format(1);
  CHECK(*machine.open()->read("a") == noise(1, 100));
}

TEST_CASE("a damaged header of a payload file says nothing of the values behind it",
          "[unit][store]") {
  Machine machine;
  REQUIRE(put(*machine.open(), "a", noise(1, 100)).ok());
  for (std::uint64_t byte = 0; byte < 24; ++byte) {
    machine.drive.flip_bit(machine.drive.names().front(), byte, 1);
    CHECK(*machine.open()->read("a") == noise(1, 100));
    machine.drive.flip_bit(machine.drive.names().front(), byte, 1);
  }
}

TEST_CASE("a payload file that is short or missing is kCorruption to who reads it, others go on",
          "[unit][store]") {
  Machine machine;
  {
    const auto store = machine.open();
    REQUIRE(put(*store, "a", noise(1, 10'000)).ok());
    REQUIRE(put(*store, "b", noise(2, 10'000)).ok());
  }
  CHECK(machine.open()->stats().missing_bytes == 0);
  machine.drive.cut_file(machine.drive.names().front(), 4096 + 3 * 4096 + 5000);
  {
    const auto store = machine.open();
    CHECK(*store->read("a") == noise(1, 10'000));
    CHECK(store->read("b").status().code() == StatusCode::kCorruption);
    CHECK(store->stats().missing_bytes == 3 * 4096);
  }
  REQUIRE(machine.drive.folder()->remove(machine.drive.names().front()).ok());
  const auto store = machine.open();
  CHECK(store->read("a").status().code() == StatusCode::kCorruption);
  CHECK(store->stats().missing_bytes == 6 * 4096);
  REQUIRE(put(*store, "a", noise(3, 10)).ok());
  CHECK(*store->read("a") == noise(3, 10));
}

TEST_CASE("a row that rots costs no memory, and the store goes on", "[unit][store]") {
  const std::uint64_t far = std::uint64_t{1} << 47;
  const Extent extent = GENERATE_COPY(Extent{1, 4096, far}, Extent{1, 2 * far, 1},
                                      Extent{7, 4096, far}, Extent{0xffffffff, 4096, 1});
  Machine machine;
  REQUIRE(put(*machine.open(), "a", noise(1, 10'000)).ok());
  const ExtentRow row = encode_extent(extent);
  REQUIRE(machine.rows.write({{{Table::kPayload, "rotten", row}}, {}}, Durability::kWal).ok());
  const auto store = machine.open();
  CHECK(store->read("rotten").status().code() == StatusCode::kCorruption);
  CHECK(*store->read("a") == noise(1, 10'000));
  REQUIRE(put(*store, "b", noise(2, 10)).ok());
  CHECK(*store->read("b") == noise(2, 10));
}

TEST_CASE("readers are not disturbed by values that move", "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  const Value kept = noise(7, 3000);
  REQUIRE(put(*store, "kept", kept).ok());
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    while (!done) {
      const auto value = store->read("kept");
      if (!value.ok() || *value != kept) ++wrong;
    }
  });
  for (unsigned i = 0; i < 1000; ++i) {
    const std::string key = std::to_string(i % 7);
    CHECK(put(*store, key, noise(i, 3000)).ok());
    CHECK(erase(*store, key).ok());
  }
  done = true;
  reader.join();
  CHECK(wrong == 0);
}

TEST_CASE("a byte that rots in any file of a store makes no wrong row, and payload of its size",
          "[unit][store][rot]") {
  namespace fs = std::filesystem;
  const std::uint64_t seed = test_number("PRECIS_TEST_SEED", std::random_device()());
  INFO("PRECIS_TEST_SEED=" << seed);
  std::mt19937_64 rng(seed);
  const TestDir dir;
  const std::string whole = dir.path() + "/whole", copy = dir.path() + "/copy";
  const auto write = [](Store& store, unsigned i) {
    const Value row = noise(i, 200), payload = noise(i + 1000, 5000);
    const std::string key = std::to_string(i);
    REQUIRE(store
                .write({{{Table::kSegments, key, row}, {Table::kPayload, key, payload}}, {}},
                       Durability::kFsync)
                .ok());
  };
  for (unsigned life = 0; life < 2; ++life) {  // the first life leaves tables, the second a log
    auto store = open_disk_store(whole).value();
    for (unsigned i = 0; i < 20; ++i) write(*store, life * 20 + i);
    if (life == 0) REQUIRE(store->harden().ok());
    if (life == 1) fs::copy(whole, copy, fs::copy_options::recursive);  // as after a kill
    fs::remove(copy + "/reserve");                                      // contains no data
  }
  std::vector<fs::path> files;
  for (const auto& file : fs::recursive_directory_iterator(copy)) {
    const std::string name = file.path().filename().string();
    if (!file.is_regular_file() || file.file_size() == 0) continue;
    if (!name.starts_with("LOG") && name != "LOCK") files.push_back(file.path());
  }
  unsigned found = 0;
  for (int round = 0; round < 200; ++round) {
    const std::string trial = dir.path() + "/trial";
    fs::remove_all(trial);
    fs::copy(copy, trial, fs::copy_options::recursive);
    const fs::path file = trial / fs::relative(files[rng() % files.size()], copy);
    const std::uint64_t at = rng() % fs::file_size(file);
    flip_bit(file, at, static_cast<unsigned>(rng() % 8));
    CAPTURE(round, file.filename().string(), at);
    const auto store = open_disk_store(trial, {.tidy_after = kTidyAtOnce});
    if (!store.ok()) {
      ++found;
      CHECK(store.status().code() != StatusCode::kInternal);
      continue;
    }
    for (unsigned i = 0; i < 40; ++i) {
      const auto row = (*store)->get(Table::kSegments, std::to_string(i));
      if (row.ok()) CHECK(*row == noise(i, 200));
      if (!row.ok()) ++found;
      // The reader of a payload checks its bytes (cut_test.cc). Here, read() must give as many
      // bytes as were put, or an error.
      const auto payload = (*store)->read(std::to_string(i));
      if (payload.ok()) CHECK(payload->size() == 5000);
    }
  }
  CHECK(found > 0);
}
