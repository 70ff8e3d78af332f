// Rows on RocksDB: one column family per table. Payload lies elsewhere (extent_store.h).
#pragma once

#include <memory>
#include <string>

#include "cachesvc/store/kept_logs.h"
#include "cachesvc/store/space_guard.h"
#include "cachesvc/store/store.h"

namespace rocksdb {
class Env;
}

namespace precis {

struct RocksdbStoreOptions {
  rocksdb::Env* env = nullptr;  // for tests, e.g. over a faulty file system; none: the machine's
  // Is asked before anything is written, and says how large files may be; none: the disk is large.
  std::shared_ptr<SpaceGuard> guard = nullptr;
  // Keeps what RocksDB deletes as it opens, for number_rows() to say whether it is of use; may be
  // null.
  KeptLogs* kept_logs = nullptr;
};

// Opens or makes the store in `dir`, whose parents are made too.
// kUnavailable if it is open already (store_lock.h) or the disk fails, kVersionMismatch if a newer
// build wrote it, kCorruption if its own files do not fit together.
Result<std::unique_ptr<Store>> open_rocksdb_store(const std::string& dir,
                                                  const RocksdbStoreOptions& options = {});

}  // namespace precis
