#include "cachesvc/store/extent_store.h"

#include <algorithm>
#include <utility>

#include "cachesvc/base/thread_executor.h"
#include "cachesvc/store/joined_store.h"
#include "cachesvc/store/numbered_rows.h"
#include "cachesvc/store/rocksdb_store.h"

namespace precis {

Result<std::unique_ptr<Store>> open_extent_store(std::unique_ptr<RowStore> rows,
                                                 std::unique_ptr<Folder> folder,
                                                 const ExtentStoreOptions& options,
                                                 std::shared_ptr<SpaceGuard> guard) {
  const OpenPayload open = [&](std::span<const Extent> live) {
    return open_extent_payload(std::move(folder), live, options, guard);
  };
  static const SystemClock clock;  // this store runs on a machine only
  return join_store(std::move(rows), open, options.write_behind_bytes,
                    {std::make_unique<ThreadExecutor>("compactor", 1), clock, options.tidy_after},
                    guard);
}

Result<std::unique_ptr<Store>> open_disk_store(const std::string& dir,
                                               const ExtentStoreOptions& options) {
  PRECIS_ASSIGN(std::unique_ptr<Folder> top, open_posix_folder(dir));
  PRECIS_ASSIGN(std::unique_ptr<SpaceGuard> opened,
                SpaceGuard::open(std::move(top), dir, options.min_free_bytes));
  const std::shared_ptr<SpaceGuard> guard = std::move(opened);
  KeptLogs kept_logs(dir);
  PRECIS_ASSIGN(std::unique_ptr<RowStore> rows,
                open_rocksdb_store(dir, {.guard = guard, .kept_logs = &kept_logs}));
  PRECIS_ASSIGN(rows, number_rows(std::move(rows), dir + "/acknowledged", {}, kept_logs));
  PRECIS_ASSIGN(std::unique_ptr<Folder> folder, open_posix_folder(dir + "/payload"));
  ExtentStoreOptions fitting = options;
  fitting.file_bytes = std::min(options.file_bytes, guard->budget().file_bytes);
  return open_extent_store(std::move(rows), std::move(folder), fitting, guard);
}

}  // namespace precis
