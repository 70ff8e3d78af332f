// The folder of backups: names, values, and what is removed.
#include "cachesvc/backup/backup_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "cachesvc/backup/backups.h"
#include "cachesvc/backup/restore.h"
#include "cachesvc/backup/rows_file.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/store/extent_store.h"
#include "precis/block_digest.h"
#include "tests/unit/store/test_dir.h"

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

namespace {

namespace fs = std::filesystem;

Digest store_value(BackupFolder& folder, unsigned seed) {
  const auto value = noise(seed, 100);
  const Digest name = sha256(value);
  REQUIRE(folder.values().write(name, value).ok());
  return name;
}

void store_backup(BackupFolder& folder, const std::string& name, std::uint64_t time,
                  const std::vector<Digest>& values) {
  auto rows = RowsWriter::create(folder.rows_path(name));
  REQUIRE(rows.ok());
  for (const Digest& value : values) {
    REQUIRE(rows->add(Table::kPayload, value.hex(), encode_value_row({value, 100})).ok());
  }
  REQUIRE(rows->finish({.created_unix_ms = time}).ok());
}

// The backups of a service with an empty store.
struct BackupsFixture {
  TestDir dir;
  const std::string folder = dir.path() + "/backups";
  MachineRuntime runtime;
  Log log{Log::Level::kOff};
  std::unique_ptr<Store> store = open_disk_store(dir.path() + "/data").value();
  Backups backups{{*store, runtime.clock(), log, folder, dir.path() + "/data",
                   runtime.make_executor("backup", 1)}};

  msg::BackupState ended() const {
    while (backups.busy()) std::this_thread::yield();
    return backups.state();
  }
};

}  // namespace

TEST_CASE_METHOD(BackupsFixture, "a backup that fails has the code of its error",
                 "[unit][backup]") {
  std::optional<BackupFolder> held(folder);
  REQUIRE(held->open_to_write().ok());
  REQUIRE(backups.start("a", 0).ok());
  CHECK(ended().state == "failed");
  CHECK(ended().code == "conflict");
  held.reset();
  REQUIRE(backups.start("a", 0).ok());
  CHECK(ended().state == "done");
  CHECK(ended().code.empty());
  const Status again = backups.start("a", 0).status();
  CHECK(again.code() == StatusCode::kConflict);
  CHECK(again == BackupFolder(folder).check_new("a"));
  CHECK_FALSE(backups.busy());
  CHECK(newest_backup(folder).value() == "a");
}

TEST_CASE_METHOD(BackupsFixture, "a backup that is asked for after the stop does not begin",
                 "[unit][backup]") {
  backups.stop();
  CHECK(backups.start("a", 0).status().code() == StatusCode::kUnavailable);
  CHECK_FALSE(backups.busy());
  CHECK_FALSE(fs::exists(folder));
  CHECK_THAT(newest_backup(folder).status().message(), Contains(folder) && Contains("NAME.rows"));
}

TEST_CASE("the name of a backup is a plain file name", "[unit][backup]") {
  for (const char* name : {"a", "2026-11-27T012300Z", "nightly_1.b", "0"}) {
    CHECK(check_backup_name(name).ok());
  }
  for (const std::string& name :
       {std::string(), std::string("."), std::string("../a"), std::string("a/b"), std::string("-a"),
        std::string("a b"), std::string("\xc3\xa4"), std::string("a\0b", 3),
        std::string(65, 'a')}) {
    CHECK(check_backup_name(name).code() == StatusCode::kInvalidArgument);
  }
}

TEST_CASE("only its owner enters the folder, and one process writes to it", "[unit][backup]") {
  const TestDir dir;
  BackupFolder folder(dir.path() + "/deep/backups");
  CHECK(folder.list().value().empty());
  REQUIRE(folder.open_to_write().ok());
  struct stat told {};
  REQUIRE(::stat(folder.dir().c_str(), &told) == 0);
  CHECK((told.st_mode & 07777) == 0700);
  const Digest name = store_value(folder, 1);
  const std::string file = folder.dir() + "/values/" + name.hex().substr(0, 2) + "/" + name.hex();
  REQUIRE(::stat(file.c_str(), &told) == 0);
  CHECK((told.st_mode & 07777) == 0600);
  BackupFolder other(folder.dir());
  CHECK(other.open_to_write().code() == StatusCode::kConflict);
}

TEST_CASE("a folder that belongs to another user is refused", "[unit][backup]") {
  const TestDir dir;
  const std::string path = dir.path() + "/backups";
  fs::create_directory(path);
  fs::permissions(path, fs::perms::owner_all);
  constexpr ::uid_t kNobody = 65534;
  if (::chown(path.c_str(), kNobody, static_cast<::gid_t>(-1)) != 0) return;  // only root may
  const Status refused = BackupFolder(path).open_to_write();
  CHECK(refused.code() == StatusCode::kPermissionDenied);
  CHECK_THAT(refused.message(), Contains("belongs to user 65534"));
}

TEST_CASE("a value is read only if its bytes have its name", "[unit][backup]") {
  const TestDir dir;
  BackupFolder folder(dir.path());
  REQUIRE(folder.open_to_write().ok());
  const Digest name = store_value(folder, 1);
  CHECK(folder.values().read(name, 100).value() == noise(1, 100));
  CHECK(folder.values().has(name, 100));
  CHECK_FALSE(folder.values().has(name, 99));
  CHECK(folder.values().read(name, 99).status().code() == StatusCode::kCorruption);
  const std::string file = folder.dir() + "/values/" + name.hex().substr(0, 2) + "/" + name.hex();
  flip_bit(file, 50, 3);
  const Status damaged = folder.values().read(name, 100).status();
  CHECK(damaged.code() == StatusCode::kCorruption);
  CHECK_THAT(damaged.message(), Contains(file));
  fs::resize_file(file, std::uintmax_t{1} << 42);  // takes no space
  CHECK(folder.values().read(name, 1ull << 42).status().code() == StatusCode::kOutOfSpace);
  fs::remove(file);
  const Status missing = folder.values().read(name, 100).status();
  CHECK(missing.code() == StatusCode::kNotFound);
  CHECK_THAT(missing.message(), Contains(file));
}

TEST_CASE("older backups go with the values that only they name", "[unit][backup]") {
  const TestDir dir;
  BackupFolder folder(dir.path());
  REQUIRE(folder.open_to_write().ok());
  const Digest old = store_value(folder, 1), both = store_value(folder, 2),
               last = store_value(folder, 3), unnamed = store_value(folder, 4);
  store_backup(folder, "b", 10, {old, both});
  store_backup(folder, "a", 20, {both, last});
  const auto rows = folder.list().value();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].name == "a");
  CHECK(rows[1].name == "b");

  REQUIRE(folder.keep(0).ok());
  CHECK_FALSE(folder.values().has(unnamed, 100));
  CHECK(folder.values().has(old, 100));
  REQUIRE(folder.keep(1).ok());
  CHECK(folder.list().value().size() == 1);
  CHECK_FALSE(folder.values().has(old, 100));
  CHECK(folder.values().has(both, 100));
  CHECK(folder.values().has(last, 100));
}

TEST_CASE("while a backup is unreadable no value is removed", "[unit][backup]") {
  const TestDir dir;
  BackupFolder folder(dir.path());
  REQUIRE(folder.open_to_write().ok());
  const Digest value = store_value(folder, 1);
  store_backup(folder, "a", 10, {value});
  flip_bit(folder.rows_path("a"), 300, 1);
  CHECK(folder.keep(0).code() == StatusCode::kCorruption);
  CHECK(folder.values().has(value, 100));
  flip_bit(folder.rows_path("a"), 20, 1);
  CHECK_THAT(folder.list().value().at(0).fault, Contains("a.rows"));
  // Nothing is removed either while the time of a backup is unknown: it may be the newest one.
  const Digest newer = store_value(folder, 2);
  store_backup(folder, "b", 20, {newer});
  CHECK_THAT(folder.keep(1).message(), Contains("a.rows") && Contains("by hand"));
  CHECK(folder.list().value().size() == 2);
  CHECK(folder.values().has(value, 100));
}

TEST_CASE("what an interrupted backup left half-written is removed", "[unit][backup]") {
  const TestDir dir;
  Digest value;
  {
    BackupFolder folder(dir.path());
    REQUIRE(folder.open_to_write().ok());
    value = store_value(folder, 1);
  }
  std::ofstream(dir.path() + "/a.rows.new") << "half";
  std::ofstream(dir.path() + "/values/00/" + std::string(64, '0') + ".new") << "half";
  BackupFolder folder(dir.path());
  REQUIRE(folder.open_to_write().ok());
  CHECK_FALSE(fs::exists(dir.path() + "/a.rows.new"));
  CHECK(fs::is_empty(dir.path() + "/values/00"));
  CHECK(folder.values().has(value, 100));
  CHECK(folder.list().value().empty());
}
