// The logs of a doubtful recovery, which can identify the kept payload.
#include "cachesvc/store/kept_logs.h"

#include <fstream>
#include <sstream>

#include "precis/limits.h"
#include "tests/unit/store/numbered_disk.h"

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

std::string content(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

// A bit in the middle of the newest log of a store that has just been filled.
constexpr unsigned kBit = 3;
std::uint64_t middle(const Disk& disk) { return fs::file_size(disk.newest(".log")) / 2; }

}  // namespace

TEST_CASE("the logs of a doubtful recovery are kept until the loss is accepted, then they go",
          "[unit][store]") {
  Disk disk;
  disk.fill();
  CHECK_FALSE(fs::exists(disk.path(kKeptLogsName)));  // nothing was lost so far
  const fs::path log = disk.newest(".log");
  flip_bit(log, middle(disk), kBit);
  const std::string damaged = content(log);
  const fs::path kept = fs::path(disk.path(kKeptLogsName)) / "1" / log.filename();
  for (int start = 0; start < 3; ++start) {
    const auto store = disk.open();
    REQUIRE(store->doubt());
    CHECK_THAT(store->doubt()->logs, Contains("are kept in " + disk.path(kKeptLogsName)));
    CHECK(content(kept) == damaged);
    CHECK_FALSE(fs::exists(disk.path(kKeptLogsName) + "/2"));  // only a new loss keeps more logs
    CHECK(store->stats().kept_log_bytes >= damaged.size());
    CHECK(fs::exists(log) == false);  // RocksDB has deleted its own
  }
  {
    const auto store = disk.open();
    REQUIRE(store->accept_loss().ok());
    CHECK_FALSE(fs::exists(disk.path(kKeptLogsName)));
    CHECK(store->stats().kept_log_bytes == 0);
  }
  CHECK_FALSE(disk.open()->doubt());
  CHECK_FALSE(fs::exists(disk.path(kKeptLogsName)));
}

TEST_CASE("what a doubtful recovery lost is there again once the kept log is mended",
          "[unit][store]") {
  Disk disk;
  disk.fill();
  const fs::path log = disk.newest(".log");
  const std::uint64_t at = middle(disk);
  flip_bit(log, at, kBit);
  CHECK(values_left(*disk.open()) < kValues);
  // A repair by hand puts the kept files, the tables and the payload together in a directory of
  // their own.
  Disk mended;
  fs::create_directories(mended.path());
  for (const auto& file : fs::directory_iterator(disk.path(kKeptLogsName) + "/1")) {
    fs::copy(file.path(), mended.path());
  }
  for (const auto& file : fs::directory_iterator(disk.path())) {
    if (file.path().extension() == ".sst") fs::copy(file.path(), mended.path());
  }
  fs::copy(disk.path("payload"), mended.path("payload"), fs::copy_options::recursive);
  flip_bit(mended.path(log.filename().string()), at, kBit);
  CHECK(values_left(*mended.open()) == kValues);
}

TEST_CASE("a start that dies before it knows what is lost leaves the logs to the next one",
          "[unit][store]") {
  Disk disk;
  disk.fill();
  const fs::path log = disk.newest(".log");
  flip_bit(log, middle(disk), kBit);
  const std::string damaged = content(log);
  {
    KeptLogs kept_logs(disk.path());
    REQUIRE(open_rocksdb_store(disk.path(), {.kept_logs = &kept_logs}).ok());
  }
  REQUIRE(disk.open()->doubt());
  CHECK(content(fs::path(disk.path(kKeptLogsName)) / "1" / log.filename()) == damaged);
}

TEST_CASE("logs of a bounded number of openings are kept, the first ones", "[unit][store]") {
  Disk disk;
  disk.fill();
  for (unsigned i = 0; i < limits::kKeptLogFoldersMax + 3; ++i) KeptLogs(disk.path()).keep();
  const auto folders = fs::directory_iterator(disk.path(kKeptLogsName));
  CHECK(std::distance(begin(folders), end(folders)) == limits::kKeptLogFoldersMax);
  CHECK(fs::exists(disk.path(kKeptLogsName) + "/1"));
  CHECK_FALSE(disk.open()->doubt());
  CHECK_FALSE(fs::exists(disk.path(kKeptLogsName)));
}

TEST_CASE("where logs can't be kept that is said, and the store opens", "[unit][store]") {
  Disk disk;
  disk.fill();
  std::ofstream(disk.path(kKeptLogsName)) << "in the way";
  flip_bit(disk.newest(".log"), middle(disk), kBit);
  const auto store = disk.open();
  REQUIRE(store->doubt());
  CHECK_THAT(store->doubt()->logs, Contains("could not be kept") && Contains(kKeptLogsName));
  CHECK(store->accept_loss().ok());
  CHECK(content(disk.path(kKeptLogsName)) == "in the way");
}
