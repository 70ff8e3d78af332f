// Properties of the RocksDB store beyond the contract: files, formats, locks, full and damaged
// disks.
#include "cachesvc/store/rocksdb_store.h"

#include <rocksdb/db.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "cachesvc/store/info_log.h"
#include "cachesvc/store/table_check.h"
#include "tests/unit/store/faulty_disk.h"
#include "tests/unit/store/test_dir.h"

using namespace precis;
using precis::testing::FaultyDisk;
using precis::testing::flip_bit;
using precis::testing::noise;
using precis::testing::TestDir;
using Value = std::vector<std::byte>;

namespace {

std::unique_ptr<RowStore> open_store(const std::string& dir,
                                     const RocksdbStoreOptions& options = {}) {
  auto store = open_rocksdb_store(dir, options);
  INFO(store.status().to_string());
  REQUIRE(store.ok());
  return std::move(store).value();
}

Status put(RowStore& store, Table table, const std::string& key, const Value& value,
           Durability durability = Durability::kWal) {
  return store.write({{{table, key, value}}, {}}, durability);
}

// The store's files with this extension.
std::vector<std::filesystem::path> files(const std::string& dir, const std::string& ending) {
  std::vector<std::filesystem::path> found;
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    if (file.path().extension() == ending) found.push_back(file.path());
  }
  return found;
}

}  // namespace

TEST_CASE("what was written is there after closing and opening, at every durability",
          "[unit][store]") {
  const TestDir dir;
  const auto durability = GENERATE(Durability::kMemory, Durability::kWal, Durability::kFsync);
  const Value row = noise(1, 100), payload = noise(2, 2'000'000);
  {
    const auto store = open_store(dir.path());
    REQUIRE(put(*store, Table::kSegments, "row", row, durability).ok());
    REQUIRE(put(*store, Table::kModels, "payload", payload, durability).ok());
    REQUIRE(put(*store, Table::kMeta, "gone", row, durability).ok());
    REQUIRE(store->write({{}, {{Table::kMeta, "gone"}}}, durability).ok());
  }
  const auto store = open_store(dir.path());
  CHECK(*store->get(Table::kSegments, "row") == row);
  CHECK(*store->get(Table::kModels, "payload") == payload);
  CHECK(store->get(Table::kMeta, "gone").status().code() == StatusCode::kNotFound);
}

TEST_CASE("missing parent directories are made", "[unit][store]") {
  const TestDir dir;
  CHECK(open_rocksdb_store(dir.path() + "/a/b").ok());
}

TEST_CASE("a directory that cannot be made is kUnavailable and named", "[unit][store]") {
  const TestDir dir;
  std::ofstream(dir.path() + "/file") << "not a directory";
  const auto store = open_rocksdb_store(dir.path() + "/file/store");
  CHECK(store.status().code() == StatusCode::kUnavailable);
  CHECK_THAT(store.status().message(),
             Catch::Contains(dir.path() + "/file/store") &&
                 Catch::Contains(dir.path() + "/file is not a directory"));
}

TEST_CASE("a store that lacks one of its files is kCorruption", "[unit][store]") {
  const TestDir dir;
  open_store(dir.path()).reset();
  for (const auto& file : std::filesystem::directory_iterator(dir.path())) {
    const bool list = file.path().filename().string().starts_with("MANIFEST");
    if (list) std::filesystem::remove(file.path());
  }
  const auto store = open_rocksdb_store(dir.path());
  INFO(store.status().to_string());
  CHECK(store.status().code() == StatusCode::kCorruption);
  CHECK_THAT(store.status().message(), Catch::Contains(dir.path()));
}

TEST_CASE("a store that is open is refused to a second opener, however he spells its path",
          "[unit][store]") {
  const TestDir dir;
  const std::string path = dir.path() + "/store", link = dir.path() + "/link";
  auto store = open_store(path);
  std::filesystem::create_directory_symlink(path, link);
  for (const std::string& spelled :
       {path, path + "/", dir.path() + "/./store", path + "/../store", link}) {
    CAPTURE(spelled);
    const auto second = open_rocksdb_store(spelled);
    CHECK(second.status().code() == StatusCode::kUnavailable);
    CHECK(second.status().message().find("is in use") != std::string::npos);
  }
  CHECK(put(*store, Table::kMeta, "key", noise(1, 1)).ok());
  store.reset();
  CHECK(open_store(link)->get(Table::kMeta, "key").ok());
}

TEST_CASE("a forked child does not keep its parent's store from being opened anew",
          "[unit][store]") {
  const TestDir dir;
  auto store = open_store(dir.path());
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    char byte = 0;
    (void)!::write(ends[1], &byte, 1);  // the child runs
    (void)!::read(ends[1], &byte, 1);   // until the parent closes its end
    ::_exit(0);
  }
  REQUIRE(child > 0);
  ::close(ends[1]);
  char byte = 0;
  REQUIRE(::read(ends[0], &byte, 1) == 1);
  CHECK(open_rocksdb_store(dir.path()).status().code() == StatusCode::kUnavailable);
  store.reset();
  CHECK(open_rocksdb_store(dir.path()).status().ok());
  ::close(ends[0]);
  CHECK(::waitpid(child, nullptr, 0) == child);
}

TEST_CASE("a store of a newer format is refused", "[unit][store]") {
  const TestDir dir;
  const Value newer{std::byte{3}, std::byte{0}, std::byte{0}, std::byte{0}};
  REQUIRE(put(*open_store(dir.path()), Table::kMeta, "store.format", newer).ok());
  const auto refused = open_rocksdb_store(dir.path());
  CHECK(refused.status().code() == StatusCode::kVersionMismatch);
  CHECK(refused.status().message().find("format 3") != std::string::npos);
}

TEST_CASE("a store of an older format is refused, with what to do", "[unit][store]") {
  const TestDir dir;
  const Value older{std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}};
  REQUIRE(put(*open_store(dir.path()), Table::kMeta, "store.format", older).ok());
  const auto refused = open_rocksdb_store(dir.path());
  CHECK(refused.status().code() == StatusCode::kVersionMismatch);
  CHECK(refused.status().message().find("another data directory") != std::string::npos);
}

TEST_CASE("a store with a damaged format row is kCorruption", "[unit][store]") {
  const TestDir dir;
  REQUIRE(put(*open_store(dir.path()), Table::kMeta, "store.format", noise(1, 3)).ok());
  CHECK(open_rocksdb_store(dir.path()).status().code() == StatusCode::kCorruption);
}

TEST_CASE("a store with a table that this build does not know is refused, and left as it is",
          "[unit][store]") {
  const TestDir dir;
  open_store(dir.path()).reset();
  std::vector<std::string> names;
  REQUIRE(rocksdb::DB::ListColumnFamilies({}, dir.path(), &names).ok());
  const auto add_table = [&] {
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const auto& name : names) families.emplace_back(name, rocksdb::ColumnFamilyOptions());
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    REQUIRE(rocksdb::DB::Open({}, dir.path(), families, &handles, &db).ok());
    rocksdb::ColumnFamilyHandle* added = nullptr;
    REQUIRE(db->CreateColumnFamily({}, "of_the_future", &added).ok());
    handles.push_back(added);
    for (auto* handle : handles) db->DestroyColumnFamilyHandle(handle);
    delete db;
  };
  add_table();
  const auto refused = open_rocksdb_store(dir.path());
  CHECK(refused.status().code() == StatusCode::kVersionMismatch);
  CHECK(refused.status().message().find("of_the_future") != std::string::npos);
}

TEST_CASE("nothing is written beside the data directory's own files, and no log to the terminal",
          "[unit][store]") {
  const TestDir dir;
  open_store(dir.path() + "/store").reset();
  CHECK(std::filesystem::exists(dir.path() + "/store/LOG"));
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("disk_bytes is what the files take, log included", "[unit][store]") {
  const TestDir dir;
  const auto store = open_store(dir.path());
  const std::uint64_t before = store->stats().disk_bytes;
  const Value row = noise(1, 500'000);
  REQUIRE(put(*store, Table::kSegments, "key", row).ok());
  CHECK(store->stats().disk_bytes >= before + row.size());  // in the log
  REQUIRE(store->harden().ok());
  CHECK(store->stats().disk_bytes >= before + row.size());  // in a table
}

TEST_CASE("a damaged row is kCorruption and never content", "[unit][store]") {
  const TestDir dir;
  {
    const auto store = open_store(dir.path());
    for (int i = 0; i < 100; ++i) {
      REQUIRE(put(*store, Table::kSegments, std::to_string(i), noise(1, 1000)).ok());
    }
    REQUIRE(store->harden().ok());
  }
  // The largest table file has the rows; its first block is data.
  std::filesystem::path largest;
  for (const auto& file : files(dir.path(), ".sst")) {
    if (largest.empty() || std::filesystem::file_size(file) > std::filesystem::file_size(largest)) {
      largest = file;
    }
  }
  flip_bit(largest, 500, 4);
  const auto store = open_store(dir.path());
  CHECK(store->get(Table::kSegments, "0").status().code() == StatusCode::kCorruption);
  const Status scanned =
      store->scan(Table::kSegments, [](std::string_view, Bytes) { return Status(); });
  CHECK(scanned.code() == StatusCode::kCorruption);
}

TEST_CASE("a table whose properties are damaged is kCorruption before RocksDB reads them",
          "[unit][store]") {
  const TestDir dir;
  {
    const auto store = open_store(dir.path());
    REQUIRE(put(*store, Table::kSegments, "a", noise(1, 200)).ok());
    REQUIRE(store->harden().ok());
  }
  const auto table = files(dir.path(), ".sst").at(0);
  CHECK(check_tables(dir.path()).ok());
  std::vector<std::uint64_t> found;  // bytes whose damage is seen
  for (std::uint64_t at = 0; at < std::filesystem::file_size(table); ++at) {
    flip_bit(table, at, 7);
    if (check_tables(dir.path()).code() == StatusCode::kCorruption) found.push_back(at);
    flip_bit(table, at, 7);
  }
  REQUIRE(found.size() > 500);
  CHECK(found.back() - found.front() + 1 == found.size());
  // Flips the highest bit of the number of restarts, which stands before the type and the checksum.
  // This bit announces an index, which is empty here.
  flip_bit(table, found.back() - 5, 7);
  const auto store = open_rocksdb_store(dir.path());
  REQUIRE(store.status().code() == StatusCode::kCorruption);
  CHECK(store.status().message().find(table.filename()) != std::string::npos);
}

TEST_CASE("a full disk is kOutOfSpace and changes nothing; with room again the store goes on",
          "[unit][store]") {
  const TestDir dir;
  FaultyDisk disk;
  const RocksdbStoreOptions options{disk.env()};
  const Value old_value = noise(1, 10'000), new_value = noise(2, 10'000);
  const auto durability = GENERATE(Durability::kWal, Durability::kFsync);
  {
    const auto store = open_store(dir.path(), options);
    REQUIRE(put(*store, Table::kModels, "key", old_value, durability).ok());
    disk.set_full(true);
    for (int i = 0; i < 3; ++i) {
      const Status refused = put(*store, Table::kModels, "key", new_value, durability);
      CHECK(refused.code() == StatusCode::kOutOfSpace);
    }
    CHECK(*store->get(Table::kModels, "key") == old_value);
    disk.set_full(false);
    REQUIRE(put(*store, Table::kModels, "key", new_value, durability).ok());
    CHECK(*store->get(Table::kModels, "key") == new_value);
  }
  CHECK(*open_store(dir.path(), options)->get(Table::kModels, "key") == new_value);
}

TEST_CASE("a disk that is full from the first row on ends no process", "[unit][store]") {
  const TestDir dir;
  FaultyDisk disk;
  const RocksdbStoreOptions options{disk.env()};
  const Value value = noise(1, 10'000);
  const auto durability = GENERATE(Durability::kWal, Durability::kFsync);
  const auto store = open_store(dir.path(), options);
  if (GENERATE(false, true)) REQUIRE(store->harden().ok());
  disk.set_full(true);
  for (int i = 0; i < 3; ++i) {
    const Status refused = put(*store, Table::kModels, "key", value, durability);
    INFO(refused.to_string());
    CHECK(refused.code() == StatusCode::kOutOfSpace);
    static_cast<void>(put(*store, Table::kModels, "other", value, Durability::kMemory));
    static_cast<void>(store->harden());
  }
  disk.set_full(false);
  REQUIRE(put(*store, Table::kModels, "key", value, durability) == Status());
  CHECK(store->harden().ok());
  CHECK(*store->get(Table::kModels, "key") == value);
}

TEST_CASE("what RocksDB says where there is no room for it ends no process", "[unit][store]") {
  const TestDir dir;
  const auto store = open_store(dir.path());
  // Limits files to about the present size of RocksDB's information log.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit limit = before;
  limit.rlim_cur = std::filesystem::file_size(dir.path() + "/LOG") + 4096;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  Status status;
  for (int i = 0; i < 25 && status.ok(); ++i) {  // each round logs some KiB
    status = put(*store, Table::kModels, "key", noise(1, 100), Durability::kMemory);
    if (status.ok()) status = store->harden();
  }
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(status == Status());
  CHECK(*store->get(Table::kModels, "key") == noise(1, 100));
}

TEST_CASE("RocksDB's account of what it does is bounded, and so is what is left of older ones",
          "[unit][store]") {
  const TestDir dir;
  const std::string log = dir.path() + "/LOG", old = log + ".old";
  std::ofstream(old + ".1795579535113107") << "of an earlier release";
  {
    InfoLog info(dir.path(), 1000);
    for (int i = 0; i < 100; ++i) info.write("line " + std::to_string(i));
    CHECK(std::filesystem::file_size(log) <= 1000);
    CHECK(std::filesystem::file_size(old) <= 1000);
    std::ifstream file(log);
    std::string line, last;
    while (std::getline(file, line)) last = line;
    CHECK_THAT(last, Catch::EndsWith(" line 99"));
  }
  CHECK_FALSE(std::filesystem::exists(old + ".1795579535113107"));
  open_store(dir.path()).reset();
  CHECK(std::filesystem::file_size(log) > 1000);
  CHECK(std::filesystem::file_size(old) <= 1000);
}

TEST_CASE("a flush that fails for want of space is reported by harden, which works later",
          "[unit][store]") {
  const TestDir dir;
  FaultyDisk disk;
  const RocksdbStoreOptions options{disk.env()};
  const Value value = noise(1, 10'000);
  {
    const auto store = open_store(dir.path(), options);
    REQUIRE(put(*store, Table::kModels, "key", value, Durability::kMemory).ok());
    disk.set_full(true);
    CHECK(store->harden().code() == StatusCode::kOutOfSpace);
    CHECK(*store->get(Table::kModels, "key") == value);
    disk.set_full(false);
    CHECK(store->harden().ok());
  }
  CHECK(*open_store(dir.path(), options)->get(Table::kModels, "key") == value);
}

TEST_CASE("a new store is made beside files of somebody else's", "[unit][store]") {
  const TestDir dir;
  std::ofstream(dir.path() + "/precisd.log") << "started";
  std::filesystem::create_directory(dir.path() + "/payload");
  CHECK(open_rocksdb_store(dir.path()).status().ok());
  CHECK(std::filesystem::exists(dir.path() + "/precisd.log"));
}

TEST_CASE("a store that has lost CURRENT is refused each time, and left as it is",
          "[unit][store]") {
  const TestDir dir;
  const bool with_tables = GENERATE(true, false);
  if (with_tables) {
    const auto store = open_store(dir.path());
    REQUIRE(put(*store, Table::kModels, "key", noise(1, 10'000)).ok());
    REQUIRE(store->harden().ok());
  } else {
    std::filesystem::create_directories(dir.path() + "/payload");
    std::ofstream(dir.path() + "/payload/0000000009.extents") << "values";
  }
  std::filesystem::remove(dir.path() + "/CURRENT");
  const auto names = [&] {
    std::set<std::string> all;
    for (const auto& file : std::filesystem::recursive_directory_iterator(dir.path())) {
      if (file.path().filename() != "store.lock") all.insert(file.path().string());
    }
    return all;
  };
  const auto before = names();
  for (int start = 0; start < 2; ++start) {
    const Status refused = open_rocksdb_store(dir.path()).status();
    CHECK(refused.code() == StatusCode::kCorruption);
    CHECK_THAT(refused.message(), Catch::Contains("the file CURRENT"));
    CHECK(names() == before);
  }
}
