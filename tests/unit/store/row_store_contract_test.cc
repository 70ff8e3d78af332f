// The contract of RowStore (cachesvc/store/row_store.h), tested with each implementation.
#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "cachesvc/store/numbered_rows.h"
#include "cachesvc/store/rocksdb_store.h"
#include "tests/unit/store/memory_rows.h"
#include "tests/unit/store/test_dir.h"

using namespace precis;
using precis::testing::MemoryRows;
using precis::testing::noise;
using precis::testing::TestDir;
using Value = std::vector<std::byte>;

namespace {

Result<std::unique_ptr<RowStore>> open_rows(const std::string& kind, const std::string& dir) {
  if (kind == "memory") return std::unique_ptr<RowStore>(std::make_unique<MemoryRows>());
  auto rows = open_rocksdb_store(dir);
  if (kind == "rocksdb" || !rows.ok()) return rows;
  return number_rows(std::move(rows).value(), dir + "/acknowledged");
}

// Rows of one kind in their own directory.
struct Subject {
  explicit Subject(const std::string& kind) {
    auto opened = open_rows(kind, dir.path());
    INFO(opened.status().to_string());
    REQUIRE(opened.ok());
    store = std::move(opened).value();
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
  std::unique_ptr<RowStore> store;
};

std::string each_kind() { return GENERATE(as<std::string>{}, "memory", "rocksdb", "numbered"); }

const std::vector<Table> kTables = {Table::kSegments,    Table::kPayload, Table::kSessions,
                                    Table::kModels,      Table::kBudgets, Table::kMeta,
                                    Table::kProjections, Table::kProfiles};

}  // namespace

TEST_CASE("a row comes back as it was written, from every table and of any size", "[unit][store]") {
  Subject subject(each_kind());
  const std::size_t size = GENERATE(0u, 1u, 4096u, 100'003u);
  const auto durability = GENERATE(Durability::kMemory, Durability::kWal, Durability::kFsync);
  for (const Table table : kTables) {
    const Value value = noise(static_cast<std::uint64_t>(table), size);
    REQUIRE(subject.store->write({{{table, "key", value}}, {}}, durability).ok());
    CHECK(subject.get(table, "key") == value);
  }
  CHECK(subject.store->harden().ok());
  for (const Table table : kTables) CHECK(subject.get(table, "key").size() == size);
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

TEST_CASE("a row that is absent or deleted is kNotFound; deleting an absent one is fine",
          "[unit][store]") {
  Subject subject(each_kind());
  CHECK(subject.code(Table::kSegments, "none") == StatusCode::kNotFound);
  const Value value = noise(1, 10);
  REQUIRE(subject.store->write({{{Table::kModels, "key", value}}, {}}, Durability::kWal).ok());
  REQUIRE(subject.store
              ->write({{}, {{Table::kModels, "key"}, {Table::kModels, "none"}}}, Durability::kWal)
              .ok());
  CHECK(subject.code(Table::kModels, "key") == StatusCode::kNotFound);
}

TEST_CASE("a second row under a key takes the place of the first", "[unit][store]") {
  Subject subject(each_kind());
  for (const std::size_t size : {1000u, 3u, 2000u}) {
    const Value value = noise(size, size);
    REQUIRE(subject.store->write({{{Table::kModels, "key", value}}, {}}, Durability::kWal).ok());
    CHECK(subject.get(Table::kModels, "key") == value);
  }
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
  RowBatch batch;
  for (unsigned i = 0; i < 300; ++i) {
    const std::string key{static_cast<char>(i * 7), static_cast<char>(i)};
    expected[key] = noise(i, i * 50);
  }
  for (const auto& [key, value] : expected) batch.puts.push_back({Table::kModels, key, value});
  batch.puts.push_back({Table::kMeta, "other", expected.begin()->second});
  REQUIRE(subject.store->write(batch, Durability::kWal).ok());

  std::vector<std::pair<std::string, Value>> rows;
  REQUIRE(subject.store
              ->scan(Table::kModels,
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

TEST_CASE("threads write and read rows, and each batch is seen whole", "[unit][store]") {
  Subject subject(each_kind());
  std::atomic<int> failed{0}, torn{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const std::string key = std::to_string(t);
      for (std::uint64_t i = 0; i < 100; ++i) {
        const Value value = noise(i, 500);
        const RowBatch batch{{{Table::kSegments, key, value}, {Table::kModels, key, value}}, {}};
        if (!subject.store->write(batch, Durability::kWal).ok()) ++failed;
        const auto one = subject.store->get(Table::kSegments, key);
        const auto other = subject.store->get(Table::kModels, key);
        if (!one.ok() || !other.ok() || *one != value || *other != value) ++torn;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(torn == 0);
}

TEST_CASE("rows in memory can be told to fail one write, which changes nothing", "[unit][store]") {
  MemoryRows store;
  const Value value = noise(1, 10);
  store.fail_next_write(Status::out_of_space("full"));
  CHECK(store.write({{{Table::kMeta, "key", value}}, {}}, Durability::kWal) ==
        Status::out_of_space("full"));
  CHECK(store.get(Table::kMeta, "key").status().code() == StatusCode::kNotFound);
  CHECK(store.write({{{Table::kMeta, "key", value}}, {}}, Durability::kWal).ok());
}

TEST_CASE("a crash of rows in memory takes what was neither logged nor hardened", "[unit][store]") {
  MemoryRows store;
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
