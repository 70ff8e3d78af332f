// A store on disk with numbered changes, and helpers for tests that damage its files.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>

#include "cachesvc/store/numbered_rows.h"
#include "cachesvc/store/rocksdb_store.h"
#include "tests/unit/store/store_machine.h"

namespace precis::testing {

inline constexpr int kValues = 12;
inline constexpr Table kRowTables[] = {Table::kSegments, Table::kSessions, Table::kModels,
                                       Table::kBudgets,  Table::kMeta,     Table::kProjections,
                                       Table::kProfiles};

inline Value value_of(int i) { return noise(static_cast<std::uint64_t>(i), 3000); }

inline void put_with_rows(Store& store, int i, Durability durability) {
  const std::string key = std::to_string(i);
  const Value value = value_of(i);
  StoreBatch batch{{{Table::kPayload, key, value}}, {}};
  for (const Table table : kRowTables) batch.puts.push_back({table, key, value});
  REQUIRE(store.write(batch, durability).ok());
}

// RocksDB and payload files in a folder, as in a service.
struct Disk {
  TestDir dir;
  std::string boot = "first";

  std::string path(const std::string& name = {}) const { return dir.path() + "/store/" + name; }
  Result<std::unique_ptr<Store>> try_open() const {
    KeptLogs kept_logs(dir.path() + "/store");
    PRECIS_ASSIGN(std::unique_ptr<RowStore> rows,
                  open_rocksdb_store(dir.path() + "/store", {.kept_logs = &kept_logs}));
    PRECIS_ASSIGN(rows, number_rows(std::move(rows), path("acknowledged"), {boot}, kept_logs));
    PRECIS_ASSIGN(std::unique_ptr<Folder> folder, open_posix_folder(path("payload")));
    // Files of a few values each, removed as soon as no row refers to them.
    return open_extent_store(std::move(rows), std::move(folder),
                             {16 << 10, 0.5, kWriteBehindBytes, kTidyAtOnce});
  }
  std::unique_ptr<Store> open() const {
    auto store = try_open();
    INFO(store.status().to_string());
    REQUIRE(store.ok());
    return std::move(store).value();
  }
  // Leaves the files as a kill does: closing writes nothing that is already in the log.
  void fill(Durability durability = Durability::kFsync) const {
    const auto store = open();
    for (int i = 0; i < kValues; ++i) {
      put_with_rows(*store, i, durability);
    }
  }
  std::filesystem::path newest(const std::string& ending) const {
    std::filesystem::path found;
    for (const auto& file : std::filesystem::directory_iterator(path())) {
      const bool is_one = file.path().extension() == ending && file.file_size() > 0;
      if (is_one && file.path() > found) found = file.path();
    }
    REQUIRE_FALSE(found.empty());
    return found;
  }
  std::map<std::string, std::uint64_t> payload() const {
    std::map<std::string, std::uint64_t> sizes;
    for (const auto& file : std::filesystem::directory_iterator(path("payload"))) {
      sizes[file.path().filename().string()] = file.file_size();
    }
    return sizes;
  }
  void save_copy() const {
    std::filesystem::remove_all(dir.path() + "/copy");
    std::filesystem::copy(path(), dir.path() + "/copy", std::filesystem::copy_options::recursive);
  }
  void restore_copy() const {
    std::filesystem::remove_all(path());
    std::filesystem::copy(dir.path() + "/copy", path(), std::filesystem::copy_options::recursive);
  }
};

// The number of values that are present with all of their rows.
inline int values_left(Store& store) {
  int left = 0;
  for (int i = 0; i < kValues; ++i) {
    const auto value = store.read(std::to_string(i));
    if (!value.ok()) continue;
    REQUIRE(*value == value_of(i));
    const bool whole = std::ranges::all_of(
        kRowTables, [&](Table table) { return store.get(table, std::to_string(i)).ok(); });
    left += whole ? 1 : 0;
  }
  return left;
}

}  // namespace precis::testing
