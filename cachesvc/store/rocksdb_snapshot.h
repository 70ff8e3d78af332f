// Reads rows from RocksDB, as they are or as they were at one instant. Only rocksdb_store.cc
// includes this header.
#pragma once

#include <rocksdb/db.h>

#include <string>
#include <vector>

#include "cachesvc/store/row_store.h"

namespace precis {

Result<std::vector<std::byte>> get_row(rocksdb::DB& db, const rocksdb::ReadOptions& how,
                                       rocksdb::ColumnFamilyHandle* family, Table table,
                                       const std::string& key);
Status scan_rows(rocksdb::DB& db, rocksdb::ReadOptions how, rocksdb::ColumnFamilyHandle* family,
                 Table table, const RowStore::VisitRow& row);

// RocksDB keeps the older versions of rows while this object exists, and writers do not wait.
class RocksdbSnapshot final : public RowSnapshot {
 public:
  // Both outlive it. `families`: by Table.
  RocksdbSnapshot(rocksdb::DB& db, const std::vector<rocksdb::ColumnFamilyHandle*>& families)
      : db_(db), families_(families), snapshot_(db.GetSnapshot()) {}
  ~RocksdbSnapshot() override { db_.ReleaseSnapshot(snapshot_); }
  RocksdbSnapshot(const RocksdbSnapshot&) = delete;
  RocksdbSnapshot& operator=(const RocksdbSnapshot&) = delete;

  Result<std::vector<std::byte>> get(Table table, const std::string& key) override {
    return get_row(db_, at_that_time(), family(table), table, key);
  }
  Status scan(Table table, const RowStore::VisitRow& row) override {
    return scan_rows(db_, at_that_time(), family(table), table, row);
  }

 private:
  rocksdb::ReadOptions at_that_time() const {
    rocksdb::ReadOptions how;
    how.snapshot = snapshot_;
    return how;
  }
  rocksdb::ColumnFamilyHandle* family(Table table) const {
    return families_[static_cast<std::size_t>(table)];
  }

  rocksdb::DB& db_;
  const std::vector<rocksdb::ColumnFamilyHandle*>& families_;
  const rocksdb::Snapshot* const snapshot_;
};

}  // namespace precis
