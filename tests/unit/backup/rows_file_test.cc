// The file of a backup's rows, whole and damaged.
#include "cachesvc/backup/rows_file.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <tuple>

#include "cachesvc/backup/restore.h"
#include "tests/unit/store/test_dir.h"

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

namespace {

using Rows = std::vector<std::tuple<Table, std::string, std::vector<std::byte>>>;

msg::BackupRow summary() {
  msg::BackupRow row;
  row.created_unix_ms = 1;
  row.values = 2;
  row.bytes = 3;
  row.copied_values = 4;
  row.copied_bytes = 5;
  row.damaged = 6;
  return row;
}

void write(const std::string& path, const Rows& rows) {
  auto writer = RowsWriter::create(path);
  REQUIRE(writer.ok());
  for (const auto& [table, key, value] : rows) REQUIRE(writer->add(table, key, value).ok());
  REQUIRE(writer->finish(summary()).ok());
}

Status read(const std::string& path, Rows& into) {
  return visit_rows(path, {[&](Table table, std::string_view key, Bytes value) {
                      into.emplace_back(table, key,
                                        std::vector<std::byte>(value.begin(), value.end()));
                      return Status();
                    }});
}

Rows some_rows() {
  return {{Table::kPayload, "a", noise(1, 40)},
          {Table::kMeta, "", noise(2, 0)},
          {Table::kSegments, std::string("\0k", 2), noise(3, 700'000)},
          {Table::kProfiles, "last", noise(4, 900'000)},
          {Table::kSessions, "x", noise(5, 10)}};
}

}  // namespace

TEST_CASE("rows and their summary are read as they were written", "[unit][backup]") {
  const TestDir dir;
  const std::string path = dir.path() + "/a.rows";
  const Rows rows = GENERATE(Rows(), some_rows());
  write(path, rows);
  Rows read_back;
  CHECK(read(path, read_back).ok());
  CHECK(read_back == rows);
  CHECK(read_backup_header(path).value() == summary());
}

TEST_CASE("a file of rows with any flipped bit or missing end is refused by name",
          "[unit][backup]") {
  const TestDir dir;
  const std::string path = dir.path() + "/a.rows";
  write(path, {{Table::kPayload, "key", noise(1, 40)}, {Table::kMeta, "other", noise(2, 5)}});
  const std::uint64_t size = std::filesystem::file_size(path);
  for (std::uint64_t byte = 0; byte < size; ++byte) {
    flip_bit(path, byte, byte % 8);
    Rows rows;
    const Status status = read(path, rows);
    CAPTURE(byte);
    REQUIRE(status.code() == StatusCode::kCorruption);
    REQUIRE_THAT(status.message(), Contains(path));
    flip_bit(path, byte, byte % 8);
  }
  for (std::uint64_t left = 0; left < size; ++left) {
    write(path, {{Table::kPayload, "key", noise(1, 40)}, {Table::kMeta, "other", noise(2, 5)}});
    std::filesystem::resize_file(path, left);
    Rows rows;
    REQUIRE(read(path, rows).code() == StatusCode::kCorruption);
  }
}

TEST_CASE("a file whose writing was interrupted is no backup", "[unit][backup]") {
  const TestDir dir;
  const std::string path = dir.path() + "/a.rows";
  auto writer = RowsWriter::create(path);
  REQUIRE(writer.ok());
  REQUIRE(writer->add(Table::kSegments, "a", noise(1, 2'000'000)).ok());
  CHECK(read_backup_header(path).status().code() == StatusCode::kCorruption);
}

TEST_CASE("a row that only a store itself writes is refused", "[unit][backup]") {
  const TestDir dir;
  for (const std::string key : {"store.format", "store.change", "restoring"}) {
    write(dir.path() + "/tampered.rows", {{Table::kMeta, key, noise(1, 8)}});
    const auto restored = restore_backup(dir.path(), "tampered", dir.path() + "/data");
    CHECK(restored.status().code() == StatusCode::kCorruption);
    CHECK_THAT(restored.status().message(), Contains(key));
    std::filesystem::remove_all(dir.path() + "/data");
  }
}
