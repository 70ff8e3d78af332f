// The contract of Store (cachesvc/store/store.h), tested with each implementation.
#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "cachesvc/store/extent_store.h"
#include "cachesvc/store/memory_store.h"
#include "tests/unit/store/test_dir.h"

using namespace precis;
using precis::testing::noise;
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
  Value get(Table table, const std::string& key) {
    auto value = store->get(table, key);
    INFO(value.status().to_string());
    REQUIRE(value.ok());
    return std::move(value).value();
  }
  StatusCode code(Table table, const std::string& key) {
    return store->get(table, key).status().code();
  }

  TestDir dir;
  std::unique_ptr<Store> store;
};

std::string each_kind() { return GENERATE(as<std::string>{}, "memory", "disk"); }

const std::vector<Table> kTables = {Table::kSegments, Table::kPayload, Table::kSessions,
                                    Table::kModels,   Table::kBudgets, Table::kMeta};

}  // namespace

TEST_CASE("a value comes back as it was written, from every table and of any size",
          "[unit][store]") {
  Subject subject(each_kind());
  const std::size_t size = GENERATE(0u, 1u, 4095u, 4096u, 1'000'003u);
  const auto durability = GENERATE(Durability::kMemory, Durability::kWal, Durability::kFsync);
  for (const Table table : kTables) {
    const Value value = noise(static_cast<std::uint64_t>(table), size);
    REQUIRE(subject.store->write({{{table, "key", value}}, {}}, durability).ok());
    CHECK(subject.get(table, "key") == value);
    Value copy(size);
    CHECK(subject.store->read_into(table, "key", copy).ok());
    CHECK(copy == value);
  }
}

TEST_CASE("a value that was staged is read as it was, once a batch has named it", "[unit][store]") {
  Subject subject(each_kind());
  const std::size_t size = GENERATE(0u, 1u, 4096u, 1'000'003u);
  const auto durability = GENERATE(Durability::kMemory, Durability::kWal, Durability::kFsync);
  const auto value = std::make_shared<const Value>(noise(1, size));
  const auto staged = subject.store->stage({*value, value});
  const auto given_up = subject.store->stage({*value, value});
  CHECK(subject.code(Table::kPayload, "key") == StatusCode::kNotFound);
  REQUIRE(subject.store->write({{{Table::kPayload, "key", *value, staged}}, {}}, durability).ok());
  CHECK(subject.get(Table::kPayload, "key") == *value);
  CHECK(subject.store->harden().ok());
  CHECK(subject.get(Table::kPayload, "key") == *value);
}

TEST_CASE("the same key in two tables is two rows", "[unit][store]") {
  Subject subject(each_kind());
  const Value a = noise(1, 10), b = noise(2, 10);
  REQUIRE(
      subject.store
          ->write({{{Table::kModels, "key", a}, {Table::kBudgets, "key", b}}, {}}, Durability::kWal)
          .ok());
  CHECK(subject.get(Table::kModels, "key") == a);
  CHECK(subject.get(Table::kBudgets, "key") == b);
}

TEST_CASE("keys are bytes: zeros and high bytes are part of them", "[unit][store]") {
  Subject subject(each_kind());
  const std::string zero("k\0a", 3), high("k\xff", 2), prefix("k");
  for (const std::string& key : {zero, high, prefix}) {
    const Value value = noise(key.size(), key.size());
    REQUIRE(subject.store->write({{{Table::kMeta, key, value}}, {}}, Durability::kWal).ok());
  }
  CHECK(subject.get(Table::kMeta, zero) == noise(3, 3));
  CHECK(subject.get(Table::kMeta, high) == noise(2, 2));
  CHECK(subject.get(Table::kMeta, prefix) == noise(1, 1));
}

TEST_CASE("an absent key is kNotFound", "[unit][store]") {
  Subject subject(each_kind());
  Value into(4);
  CHECK(subject.code(Table::kSegments, "none") == StatusCode::kNotFound);
  CHECK(subject.store->read_into(Table::kPayload, "none", into).code() == StatusCode::kNotFound);
}

TEST_CASE("read_into a buffer of another size is kCorruption and leaves the buffer alone",
          "[unit][store]") {
  Subject subject(each_kind());
  const Value value = noise(1, 5000);
  REQUIRE(subject.store->write({{{Table::kPayload, "key", value}}, {}}, Durability::kWal).ok());
  const std::size_t size = GENERATE(0u, 4999u, 5001u);
  Value into(size, std::byte{7});
  CHECK(subject.store->read_into(Table::kPayload, "key", into).code() == StatusCode::kCorruption);
  CHECK(into == Value(size, std::byte{7}));
}

TEST_CASE("a second value under a key takes the place of the first", "[unit][store]") {
  Subject subject(each_kind());
  for (const std::size_t size : {100'000u, 3u, 200'000u}) {
    const Value value = noise(size, size);
    REQUIRE(subject.store->write({{{Table::kPayload, "key", value}}, {}}, Durability::kWal).ok());
    CHECK(subject.get(Table::kPayload, "key") == value);
  }
}

TEST_CASE("a deleted row is gone; deleting an absent one is fine", "[unit][store]") {
  Subject subject(each_kind());
  const Value value = noise(1, 10'000);
  REQUIRE(subject.store->write({{{Table::kPayload, "key", value}}, {}}, Durability::kWal).ok());
  REQUIRE(subject.store
              ->write({{}, {{Table::kPayload, "key"}, {Table::kPayload, "none"}}}, Durability::kWal)
              .ok());
  CHECK(subject.code(Table::kPayload, "key") == StatusCode::kNotFound);
}

TEST_CASE("within a batch deletes come after puts", "[unit][store]") {
  Subject subject(each_kind());
  const Value value = noise(1, 10);
  REQUIRE(subject.store
              ->write({{{Table::kMeta, "both", value}, {Table::kMeta, "put", value}},
                       {{Table::kMeta, "both"}}},
                      Durability::kWal)
              .ok());
  CHECK(subject.code(Table::kMeta, "both") == StatusCode::kNotFound);
  CHECK(subject.get(Table::kMeta, "put") == value);
}

TEST_CASE("an empty batch is written without effect", "[unit][store]") {
  Subject subject(each_kind());
  const auto durability = GENERATE(Durability::kMemory, Durability::kWal, Durability::kFsync);
  CHECK(subject.store->write({}, durability).ok());
}

TEST_CASE("scan gives every row of one table in the order of its keys", "[unit][store]") {
  Subject subject(each_kind());
  std::map<std::string, Value> expected;
  StoreBatch batch;
  for (unsigned i = 0; i < 300; ++i) {
    const std::string key{static_cast<char>(i * 7), static_cast<char>(i)};
    expected[key] = noise(i, i * 50);
  }
  for (const auto& [key, value] : expected) batch.puts.push_back({Table::kPayload, key, value});
  batch.puts.push_back({Table::kMeta, "other", expected.begin()->second});
  REQUIRE(subject.store->write(batch, Durability::kWal).ok());

  std::vector<std::pair<std::string, Value>> rows;
  REQUIRE(subject.store
              ->scan(Table::kPayload,
                     [&](std::string_view key, Bytes value) -> Status {
                       rows.emplace_back(key, Value(value.begin(), value.end()));
                       return {};
                     })
              .ok());
  // std::map orders keys as std::string compares them: by unsigned bytes.
  CHECK(rows == std::vector<std::pair<std::string, Value>>(expected.begin(), expected.end()));
}

TEST_CASE("scan stops with the status that its row function returns", "[unit][store]") {
  Subject subject(each_kind());
  const Value value = noise(1, 1);
  for (const char* key : {"a", "b", "c"}) {
    REQUIRE(subject.store->write({{{Table::kMeta, key, value}}, {}}, Durability::kWal).ok());
  }
  int rows = 0;
  const Status stopped =
      subject.store->scan(Table::kMeta, [&](std::string_view key, Bytes) -> Status {
        ++rows;
        return key == "b" ? Status::canceled("enough") : Status();
      });
  CHECK(stopped == Status::canceled("enough"));
  CHECK(rows >= 2);  // some stores have a row of their own
}

TEST_CASE("a scan may read and write the store", "[unit][store]") {
  Subject subject(each_kind());
  const Value value = noise(1, 1);
  REQUIRE(subject.store->write({{{Table::kModels, "a", value}}, {}}, Durability::kWal).ok());
  REQUIRE(
      subject.store
          ->scan(
              Table::kModels,
              [&](std::string_view, Bytes) {
                return subject.store->write({{{Table::kModels, "b", value}}, {}}, Durability::kWal);
              })
          .ok());
  CHECK(subject.get(Table::kModels, "b") == value);
}

TEST_CASE("payload_bytes grows by about what is written", "[unit][store]") {
  Subject subject(each_kind());
  const std::uint64_t before = subject.store->stats().payload_bytes;
  const Value value = noise(1, 3'000'000);
  REQUIRE(subject.store->write({{{Table::kPayload, "key", value}}, {}}, Durability::kWal).ok());
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
        const auto payload = subject.store->get(Table::kPayload, key);
        if (!row.ok() || !payload.ok() || *row != value || *payload != value) ++torn;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(torn == 0);
}

TEST_CASE("a failure asked of the memory store hits the next write alone and changes nothing",
          "[unit][store]") {
  MemoryStore store;
  const Value value = noise(1, 10);
  store.fail_next_write(Status::out_of_space("full"));
  CHECK(store.write({{{Table::kMeta, "key", value}}, {}}, Durability::kWal) ==
        Status::out_of_space("full"));
  CHECK(store.get(Table::kMeta, "key").status().code() == StatusCode::kNotFound);
  CHECK(store.write({{{Table::kMeta, "key", value}}, {}}, Durability::kWal).ok());
}

TEST_CASE("a crash of the memory store takes what was neither logged nor hardened",
          "[unit][store]") {
  MemoryStore store;
  const Value value = noise(1, 10);
  REQUIRE(store.write({{{Table::kMeta, "hardened", value}}, {}}, Durability::kMemory).ok());
  REQUIRE(store.harden().ok());
  REQUIRE(store.write({{{Table::kMeta, "lost", value}}, {}}, Durability::kMemory).ok());
  REQUIRE(store.write({{{Table::kMeta, "logged", value}}, {}}, Durability::kWal).ok());
  store.crash();
  CHECK(store.get(Table::kMeta, "hardened").ok());
  CHECK(store.get(Table::kMeta, "logged").ok());
  CHECK(store.get(Table::kMeta, "lost").status().code() == StatusCode::kNotFound);
}
