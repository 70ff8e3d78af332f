// The store at one instant, while values are put, replaced, removed and moved.
#include "cachesvc/store/store_snapshot.h"

#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "tests/unit/store/store_machine.h"

using namespace precis;
using namespace precis::testing;

namespace {

using Content = std::map<std::string, Value>;

Content read_all(StoreSnapshot& snapshot) {
  Content content;
  const std::vector<StoreSnapshot::Value> values = snapshot.values().value();
  for (const StoreSnapshot::Value& each : values) {
    auto bytes = snapshot.read(each);
    INFO(bytes.status().to_string());
    REQUIRE(bytes.ok());
    content[each.key] = std::move(bytes).value();
  }
  return content;
}

void churn(Store& store, const Content& content) {
  unsigned seed = 1000;
  for (const auto& [key, value] : content) {
    if (seed++ % 3 == 0) {
      REQUIRE(put(store, key, noise(seed, value.size())).ok());
    } else {
      REQUIRE(erase(store, key).ok());
    }
  }
}

void await_passes(Store& store, std::uint64_t passes) {
  while (store.stats().tidy_passes < passes) {
    REQUIRE(put(store, "passing", noise(9, 100)).ok());
    REQUIRE(erase(store, "passing").ok());
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("a snapshot has every value of its instant, whatever changes and is moved meanwhile",
          "[unit][store]") {
  Machine machine;
  machine.drive.set_punches(GENERATE(true, false));
  const auto store = machine.open();
  Content content;
  for (unsigned i = 0; i < 40; ++i) {
    const std::string key = std::to_string(i);
    content[key] = noise(i, 9000);
    REQUIRE(put(*store, key, content[key]).ok());
  }
  // This value waits in memory for the disk.
  REQUIRE(stage_and_put(*store, "late", shared_noise(77, 9000)).ok());
  content["late"] = noise(77, 9000);
  auto snapshot = store->snapshot();
  REQUIRE(snapshot.ok());
  CHECK(store->snapshot().status().code() == StatusCode::kConflict);
  churn(*store, content);
  await_passes(*store, store->stats().tidy_passes + 3);
  CHECK(read_all(**snapshot) == content);

  snapshot->reset();
  for (const auto& [key, value] : content) (void)erase(*store, key);
  while (machine.drive.bytes() > 0) std::this_thread::yield();  // reclaimed by a thread
  CHECK(store->snapshot().ok());
}

TEST_CASE("a snapshot of rows does not change", "[unit][store]") {
  const TestDir dir;
  const auto store = open_disk_store(dir.path()).value();
  const Value before = noise(1, 10), after = noise(2, 10);
  REQUIRE(store->write({{{Table::kSessions, "a", before}}, {}}, Durability::kMemory).ok());
  const auto snapshot = store->snapshot();
  REQUIRE(snapshot.ok());
  REQUIRE(store
              ->write({{{Table::kSessions, "a", after}, {Table::kSessions, "b", after}}, {}},
                      Durability::kWal)
              .ok());
  RowSnapshot& rows = (*snapshot)->rows();
  CHECK(*rows.get(Table::kSessions, "a") == before);
  CHECK(rows.get(Table::kSessions, "b").status().code() == StatusCode::kNotFound);
  unsigned count = 0;
  const auto visit = [&](std::string_view, Bytes) { return ++count, Status(); };
  CHECK(rows.scan(Table::kSessions, visit).ok());
  CHECK(count == 1);
}
