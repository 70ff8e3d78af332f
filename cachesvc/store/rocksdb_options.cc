#include "cachesvc/store/rocksdb_options.h"

#include <cstdarg>
#include <cstdio>
#include <memory>

#include "cachesvc/store/info_log.h"
#include "precis/limits.h"

namespace precis {
namespace {

class InfoLogger final : public rocksdb::Logger {
 public:
  InfoLogger(const std::string& dir, std::uint64_t bytes_max)
      : Logger(rocksdb::InfoLogLevel::INFO_LEVEL), log_(dir, bytes_max) {}
  using Logger::Logv;
  void Logv(const char* format, std::va_list arguments) override {
    std::array<char, 4096> line{};  // longer lines are cut
    (void)std::vsnprintf(line.data(), line.size(), format, arguments);
    log_.write(line.data());
  }

 private:
  InfoLog log_;
};

rocksdb::ColumnFamilyOptions family_options(const DiskBudget& budget) {
  rocksdb::ColumnFamilyOptions family;
  family.write_buffer_size = budget.memtable_bytes;
  family.target_file_size_base = budget.memtable_bytes;
  family.max_bytes_for_level_base = budget.level_bytes;
  family.max_compaction_bytes = budget.level_bytes;
  return family;
}

}  // namespace

std::string key_text(Table table, const std::string& key) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text(kFamilyNames[static_cast<std::size_t>(table)]);
  text += " row ";
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kHex[byte >> 4], kHex[byte & 15]};
  }
  return text;
}

DiskBudget budget_of(const RocksdbStoreOptions& options) {
  return options.guard ? options.guard->budget() : DiskBudget::of(~std::uint64_t{0});
}

// With these sizes, everything that RocksDB writes by itself fits into the reserve (disk_budget.h).
// RocksDB allocates a log's disk space when it creates the log.
rocksdb::DBOptions db_options(const std::string& dir, const RocksdbStoreOptions& options) {
  const DiskBudget budget = budget_of(options);
  rocksdb::DBOptions db;
  if (options.env) db.env = options.env;
  db.create_if_missing = true;
  db.create_missing_column_families = true;
  // A batch without WAL (Durability::kMemory) spans families; only atomic flushes keep it whole.
  db.atomic_flush = true;
  db.max_open_files = static_cast<int>(limits::kOpenTableFilesMax);
  db.db_write_buffer_size = 2 * budget.memtable_bytes;
  db.max_total_wal_size = 4 * budget.memtable_bytes;
  db.manifest_preallocation_size = budget.memtable_bytes / 4;
  db.info_log = std::make_shared<InfoLogger>(dir, budget.memtable_bytes);
  db.stats_dump_period_sec = 0;
  return db;
}

std::vector<rocksdb::ColumnFamilyDescriptor> families(const DiskBudget& budget) {
  std::vector<rocksdb::ColumnFamilyDescriptor> all;
  for (std::size_t t = 0; t < kTableCount; ++t) {
    all.emplace_back(std::string(kFamilyNames[t]), family_options(budget));
  }
  // Contains only the row that mark_log() writes (rocksdb_store.cc).
  all.emplace_back(rocksdb::kDefaultColumnFamilyName, family_options(budget));
  return all;
}

}  // namespace precis
