// Rows in RocksDB: one column family per table.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/store/kept_logs.h"
#include "cachesvc/store/row_store.h"
#include "cachesvc/store/space_guard.h"

namespace rocksdb {
class Env;
class Status;
}  // namespace rocksdb

namespace precis {

struct RocksdbStoreOptions {
  rocksdb::Env* env = nullptr;  // for tests, such as a faulty file system; null: the default
  // Asked before every write, and sets the sizes of files; null: no limits, sizes for a large disk.
  std::shared_ptr<SpaceGuard> guard = nullptr;
  // Keeps the logs that RocksDB deletes when it opens; number_rows() decides whether they are
  // needed. May be null.
  KeptLogs* kept_logs = nullptr;
};

// kOutOfSpace, kNotFound, kCorruption, kInternal for a call that this build should not have made,
// and kUnavailable for all other failures. `what`: the operation, for the message.
Status from_rocksdb(const rocksdb::Status& status, const std::string& what);

// Opens or creates the store in `dir`; creates missing parents. kUnavailable if it is already open
// (store_lock.h) or the disk fails, kVersionMismatch if a newer build wrote it, kCorruption if its
// files are inconsistent.
Result<std::unique_ptr<RowStore>> open_rocksdb_store(const std::string& dir,
                                                     const RocksdbStoreOptions& options = {});

}  // namespace precis
