// The contract of Store (cachesvc/store/store.h), tested over each pair of rows and payload.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "cachesvc/store/extent_store.h"
#include "tests/unit/store/memory_store.h"
#include "tests/unit/store/scan_payload.h"
#include "tests/unit/store/test_dir.h"

using namespace precis;
using precis::testing::MemoryStore;
using precis::testing::noise;
using precis::testing::scan_payload;
using precis::testing::TestDir;
using Value = std::vector<std::byte>;

namespace {

// A store of one kind in its own directory.
struct Subject {
  explicit Subject(const std::string& kind) {
    if (kind == "disk") {
      auto opened = open_disk_store(dir.path());
      REQUIRE(opened.ok());
      store = std::move(opened).value();
    } else {
      store = std::make_unique<MemoryStore>();
    }
  }
  Value read(const std::string& key) {
    auto value = store->read(key);
    INFO(value.status().to_string());
    REQUIRE(value.ok());
    return std::move(value).value();
  }
  StatusCode code(const std::string& key) { return store->read(key).status().code(); }
  Status put(const std::string& key, const Value& value, Durability durability = Durability::kWal) {
    return store->write({{{Table::kPayload, key, value}}, {}}, durability);
  }

  TestDir dir;
  std::unique_ptr<Store> store;
};

std::string each_kind() { return GENERATE(as<std::string>{}, "memory", "disk"); }

}  // namespace

TEST_CASE("payload comes back as it was written, of any size", "[unit][store]") {
  Subject subject(each_kind());
  const std::size_t size = GENERATE(0u, 1u, 4095u, 4096u, 1'000'003u);
  const auto durability = GENERATE(Durability::kMemory, Durability::kWal, Durability::kFsync);
  const Value value = noise(1, size);
  REQUIRE(subject.put("key", value, durability).ok());
  CHECK(subject.read("key") == value);
  Value copy(size);
  CHECK(subject.store->read_into("key", copy).ok());
  CHECK(copy == value);
}

TEST_CASE("a value that was staged is read as it was, once a batch has named it", "[unit][store]") {
  Subject subject(each_kind());
  const std::size_t size = GENERATE(0u, 1u, 4096u, 1'000'003u);
  const auto durability = GENERATE(Durability::kMemory, Durability::kWal, Durability::kFsync);
  const auto value = std::make_shared<const Value>(noise(1, size));
  const auto staged = subject.store->stage({*value, value});
  const auto given_up = subject.store->stage({*value, value});
  CHECK(subject.code("key") == StatusCode::kNotFound);
  REQUIRE(subject.store->write({{{Table::kPayload, "key", *value, staged}}, {}}, durability).ok());
  CHECK(subject.read("key") == *value);
  CHECK(subject.store->harden().ok());
  CHECK(subject.read("key") == *value);
}

TEST_CASE("absent payload is kNotFound", "[unit][store]") {
  Subject subject(each_kind());
  Value into(4);
  CHECK(subject.code("none") == StatusCode::kNotFound);
  CHECK(subject.store->read_into("none", into).code() == StatusCode::kNotFound);
  CHECK_FALSE(subject.store->keep({"none"}, true));
}

TEST_CASE("read_into a buffer of another size is kCorruption and leaves the buffer alone",
          "[unit][store]") {
  Subject subject(each_kind());
  const Value value = noise(1, 5000);
  REQUIRE(subject.put("key", value).ok());
  const std::size_t size = GENERATE(0u, 4999u, 5001u);
  Value into(size, std::byte{7});
  CHECK(subject.store->read_into("key", into).code() == StatusCode::kCorruption);
  CHECK(into == Value(size, std::byte{7}));
}

TEST_CASE("a second value under a key takes the place of the first", "[unit][store]") {
  Subject subject(each_kind());
  for (const std::size_t size : {100'000u, 3u, 200'000u}) {
    const Value value = noise(size, size);
    REQUIRE(subject.put("key", value).ok());
    CHECK(subject.read("key") == value);
  }
}

TEST_CASE("deleted payload is gone; deleting what is absent is fine", "[unit][store]") {
  Subject subject(each_kind());
  const Value value = noise(1, 10'000);
  REQUIRE(subject.put("key", value).ok());
  REQUIRE(subject.store
              ->write({{}, {{Table::kPayload, "key"}, {Table::kPayload, "none"}}}, Durability::kWal)
              .ok());
  CHECK(subject.code("key") == StatusCode::kNotFound);
}

TEST_CASE("what is kept is read after its key is written again or deleted", "[unit][store]") {
  Subject subject(each_kind());
  const Value first = noise(1, 10'000), second = noise(2, 5000);
  REQUIRE(subject.put("key", first).ok());
  const auto kept = subject.store->keep({"key"}, true);
  REQUIRE(kept);
  REQUIRE(subject.put("key", second).ok());
  REQUIRE(subject.store->write({{}, {{Table::kPayload, "key"}}}, Durability::kWal).ok());
  Value into(first.size());
  CHECK(kept->at(0)->read_into(into).ok());
  CHECK(into == first);
}

TEST_CASE("payload is named in the order of its keys", "[unit][store]") {
  Subject subject(each_kind());
  StoreBatch batch;
  std::vector<Value> values;
  for (unsigned i = 0; i < 100; ++i) values.push_back(noise(i, i * 50));
  for (unsigned i = 100; i-- > 0;) {
    batch.puts.push_back({Table::kPayload, std::to_string(1000 + i), values[i]});
  }
  REQUIRE(subject.store->write(batch, Durability::kWal).ok());
  std::vector<Value> found;
  REQUIRE(scan_payload(*subject.store, [&](std::string_view, Bytes value) -> Status {
            found.emplace_back(value.begin(), value.end());
            return {};
          }).ok());
  CHECK(found == values);
}

TEST_CASE("payload_bytes grows by about what is written", "[unit][store]") {
  Subject subject(each_kind());
  const std::uint64_t before = subject.store->stats().payload_bytes;
  const Value value = noise(1, 3'000'000);
  REQUIRE(subject.put("key", value).ok());
  const std::uint64_t grown = subject.store->stats().payload_bytes - before;
  CHECK(grown >= value.size());
  CHECK(grown < value.size() + value.size() / 10);
}

TEST_CASE("threads write and read one store, and each batch is seen whole", "[unit][store]") {
  Subject subject(each_kind());
  std::atomic<int> torn{0}, failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const std::string key = std::to_string(t);
      for (std::uint64_t i = 0; i < 100; ++i) {
        const Value value = noise(i, 5000);
        const StoreBatch batch{{{Table::kSegments, key, value}, {Table::kPayload, key, value}}, {}};
        if (!subject.store->write(batch, Durability::kWal).ok()) ++failed;
        const auto row = subject.store->get(Table::kSegments, key);
        const auto payload = subject.store->read(key);
        if (!row.ok() || !payload.ok() || *row != value || *payload != value) ++torn;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(torn == 0);
}

TEST_CASE("a batch whose rows fail changes nothing, and its payload is freed", "[unit][store]") {
  MemoryStore store;
  const Value value = noise(1, 10);
  store.fail_next_write(Status::out_of_space("full"));
  const StoreBatch batch{{{Table::kMeta, "key", value}, {Table::kPayload, "key", value}}, {}};
  CHECK(store.write(batch, Durability::kWal) == Status::out_of_space("full"));
  CHECK(store.get(Table::kMeta, "key").status().code() == StatusCode::kNotFound);
  CHECK(store.read("key").status().code() == StatusCode::kNotFound);
  CHECK(store.stats().payload_bytes == 0);
  CHECK(store.write(batch, Durability::kWal).ok());
  CHECK(store.read("key").ok());
}

TEST_CASE("a crash takes payload with the rows that named it, and brings back what they replaced",
          "[unit][store]") {
  MemoryStore store;
  const Value first = noise(1, 10), second = noise(2, 20);
  REQUIRE(store.write({{{Table::kPayload, "key", first}}, {}}, Durability::kWal).ok());
  REQUIRE(store.write({{{Table::kPayload, "key", second}}, {}}, Durability::kMemory).ok());
  REQUIRE(store.write({{{Table::kPayload, "lost", second}}, {}}, Durability::kMemory).ok());
  store.crash();
  CHECK(*store.read("key") == first);
  CHECK(store.read("lost").status().code() == StatusCode::kNotFound);
  CHECK(store.stats().payload_bytes == first.size());
}
