// How RocksDB is set up: its column families, limits and the sizes of its files. Only
// rocksdb_*.cc include this header.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/options.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/store/disk_budget.h"
#include "cachesvc/store/rocksdb_store.h"

namespace precis {

// Indexed by Table's value. Names are stored: append only.
inline constexpr std::array<std::string_view, kTableCount> kFamilyNames = {
    "segments", "payload", "sessions", "models", "budgets", "meta", "projections", "profiles"};

// Far more than any row has. RocksDB stores value sizes in 32 bits.
inline constexpr std::size_t kValueBytesMax = std::size_t{3} << 30;
// Bytes per value besides key and value: type, family, two lengths of at most five bytes.
inline constexpr std::size_t kBatchOverheadBytes = 16;

// For messages: the table's name, and the key in hexadecimal.
std::string key_text(Table table, const std::string& key);
// The guard's budget, or that of a large disk.
DiskBudget budget_of(const RocksdbStoreOptions& options);
rocksdb::DBOptions db_options(const std::string& dir, const RocksdbStoreOptions& options);
// One per table, then RocksDB's default.
std::vector<rocksdb::ColumnFamilyDescriptor> families(const DiskBudget& budget);

}  // namespace precis
