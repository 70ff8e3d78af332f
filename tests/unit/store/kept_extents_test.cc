// Kept payload stays readable whatever happens to its key, and its space is reclaimed later.
#include <catch2/catch.hpp>
#include <optional>
#include <thread>

#include "cachesvc/store/extent_files.h"
#include "tests/unit/store/store_machine.h"

using namespace precis;
using namespace precis::testing;

namespace {

Value read(const KeptPayload& kept, std::size_t value, std::size_t size) {
  Value bytes(size);
  const Status status = kept.at(value)->read_into(bytes);
  INFO(status.to_string());
  REQUIRE(status.ok());
  return bytes;
}

// Waits until the compactor has searched for space again.
void wait_for_compactor(Store& store) {
  const std::uint64_t passes = store.stats().tidy_passes;
  REQUIRE(put(store, "passing", noise(9, 100)).ok());
  REQUIRE(erase(store, "passing").ok());
  while (store.stats().tidy_passes < passes + 2) {
    REQUIRE(put(store, "passing", noise(9, 100)).ok());
    REQUIRE(erase(store, "passing").ok());
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("what is kept is read after it was removed or replaced, and its file stays till then",
          "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  const Value a = noise(1, 30'000), b = noise(2, 30'000), c = noise(3, 30'000);
  REQUIRE(put(*store, "a", a).ok());
  REQUIRE(put(*store, "b", b).ok());
  auto kept = store->keep({"b", "a"}, true);
  REQUIRE(kept);
  REQUIRE(erase(*store, "a").ok());
  REQUIRE(put(*store, "b", c).ok());
  REQUIRE(erase(*store, "b").ok());
  wait_for_compactor(*store);
  CHECK(machine.drive.bytes() >= a.size() + b.size());
  CHECK(read(*kept, 0, b.size()) == b);
  CHECK(read(*kept, 1, a.size()) == a);
  Value wrong(7);
  CHECK(kept->at(0)->read_into(wrong).code() == StatusCode::kCorruption);
  kept.reset();
  while (machine.drive.bytes() > 0) std::this_thread::yield();  // reclaimed by a thread
}

TEST_CASE("what waits for the disk is written to be kept, and what is not there can't be",
          "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  const auto value = shared_noise(1, 20'000);
  REQUIRE(stage_and_put(*store, "a", value).ok());
  CHECK_FALSE(store->keep({"a", "none"}, true));
  const auto kept = store->keep({"a"}, true);
  REQUIRE(kept);
  REQUIRE(erase(*store, "a").ok());
  CHECK(read(*kept, 0, value->size()) == *value);
}

TEST_CASE("who may not wait keeps what is written alone", "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  REQUIRE(put(*store, "a", noise(1, 20'000)).ok());
  machine.drive.hold(true);
  REQUIRE(stage_and_put(*store, "b", shared_noise(2, 20'000)).ok());
  CHECK(store->keep({"a"}, false));
  CHECK_FALSE(store->keep({"a", "b"}, false));
  machine.drive.hold(false);
  CHECK(store->keep({"a", "b"}, true));
}

TEST_CASE("holes end at what is kept, and its file is not emptied", "[unit][store]") {
  FaultyDrive drive;
  const auto files = ExtentFiles::open(drive.folder(), {}, 100'000).value();
  const Value value(5000);  // two blocks
  const auto places = files->append(std::vector<Bytes>(6, value)).value();
  REQUIRE(files->append(std::vector<Bytes>(20, value)).ok());  // completes the first file
  std::optional pin = files->pin(places[2], ExtentFiles::Pinning::kKeep);
  for (std::size_t i = 1; i < 6; ++i) files->free(places[i]);
  const auto holes = files->holes();
  REQUIRE(holes.size() == 2);
  CHECK(holes[0].offset == places[1].offset);
  CHECK(holes[0].offset + holes[0].size == places[2].offset);
  CHECK(holes[1].offset == places[3].offset);
  CHECK_FALSE(files->sparsest(0.9));
  REQUIRE(files->punch(holes).ok());
  CHECK(files->holes().empty());
  Value read(value.size(), std::byte{1});
  CHECK(pin->read(read).ok());
  CHECK(read == value);
  pin.reset();
  REQUIRE(files->holes().size() == 1);
  CHECK(files->holes()[0].offset == places[2].offset);
  CHECK(files->sparsest(0.9) == places[0].file);
}

TEST_CASE("files of which something is kept are not open for it", "[unit][store]") {
  Machine machine;
  const auto store = machine.open();
  std::vector<std::shared_ptr<const KeptPayload>> all;
  for (unsigned i = 0; i < 300; ++i) {  // one file each, more than may be open
    REQUIRE(put(*store, "a", noise(i, kFileBytes)).ok());
    all.push_back(store->keep({"a"}, true));
    REQUIRE(all.back());
  }
  REQUIRE(erase(*store, "a").ok());
  wait_for_compactor(*store);
  CHECK(machine.drive.open_files() <= limits::kOpenPayloadFilesMax + 8);
  for (unsigned i = 0; i < 300; ++i) CHECK(read(*all[i], 0, kFileBytes) == noise(i, kFileBytes));
}
