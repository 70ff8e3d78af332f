// The store on disk: rows in RocksDB, payload in extent files. Rows name values that are written
// (joined_store.h). So after a crash of the process no row refers to a missing value; after a crash
// of the machine the same holds for writes at kFsync. Opening reads rows only, whatever the size of
// the payload.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "cachesvc/store/files.h"
#include "cachesvc/store/space_guard.h"
#include "cachesvc/store/store.h"
#include "precis/limits.h"

namespace precis {

struct ExtentStoreOptions {
  std::uint64_t file_bytes = 256u << 20;  // approximate size of a payload file
  // If a file's live share is below this, its values are moved and the file is removed.
  double live_share = 0.5;
  // The most payload that is acknowledged in memory before it is written to a file.
  std::uint64_t write_behind_bytes = 256u << 20;
  // Delay from a removal to the search for reclaimable space, so later removals share the search:
  // moving and syncing values slows down concurrent requests. There is no delay after opening, nor
  // after a failed write (which may lack space) until payload is written again.
  std::chrono::milliseconds tidy_after{1000};
  // Payload that would leave less free space is refused. A value below the mark that DiskBudget
  // sets, for example 0, is raised to that mark.
  std::uint64_t min_free_bytes = 0;
};

// The most descriptors that a store on disk has open.
inline constexpr std::uint32_t kStoreDescriptorsMax =
    limits::kOpenPayloadFilesMax + limits::kOpenTableFilesMax + limits::kOpenOtherFilesMax;

// Payload in append-only files of `folder` (extent_files.h). `live`: the places of all values that
// rows name. Opening reads no values. `guard` may be null; it is asked before every write.
Result<std::unique_ptr<PayloadStore>> open_extent_payload(
    std::unique_ptr<Folder> folder, std::span<const Extent> live, const ExtentStoreOptions& options,
    std::shared_ptr<SpaceGuard> guard = nullptr);

// Joins such payload with `rows`, to which nothing else may write.
Result<std::unique_ptr<Store>> open_extent_store(std::unique_ptr<RowStore> rows,
                                                 std::unique_ptr<Folder> folder,
                                                 const ExtentStoreOptions& options = {},
                                                 std::shared_ptr<SpaceGuard> guard = nullptr);

// Opens RocksDB in `dir` and payload files in `dir`/payload. `dir`/acknowledged holds the record
// that detects missing acknowledged changes (numbered_rows.h). If any are missing, the logs that
// held them are kept in `dir`/before_recovery until accept_loss() (kept_logs.h). On a small disk,
// payload files are smaller than options.file_bytes. Opens on a full disk too.
Result<std::unique_ptr<Store>> open_disk_store(const std::string& dir,
                                               const ExtentStoreOptions& options = {});

}  // namespace precis
