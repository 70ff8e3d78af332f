// The store on disk: rows in RocksDB, payload in extent files beside it. A payload value's row says
// where it lies, and is written when the value is: so after a crash of the process no row speaks of
// what is not there, nor after one of the machine if it was written at kFsync; and opening reads
// rows alone, whatever the size of the payload.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cachesvc/store/files.h"
#include "cachesvc/store/space_guard.h"
#include "cachesvc/store/store.h"
#include "precis/limits.h"

namespace precis {

struct ExtentStoreOptions {
  std::uint64_t file_bytes = 256u << 20;  // a payload file's length, about
  // Below this share of bytes that count, a file's values are moved and the file removed.
  double live_share = 0.5;
  // Of payload that is acknowledged in memory and on its way to a file, at most.
  std::uint64_t write_behind_bytes = 256u << 20;
  // From a removal to the search for what space it leaves, and what is removed meanwhile is
  // searched with it: moving and syncing is felt by who gets beside it. At once after
  // opening, and where something failed, for want of space perhaps, until payload is written again.
  std::chrono::milliseconds tidy_after{1000};
  // Payload that would leave less free on the disk is refused. What is less than the mark that
  // DiskBudget sets, 0 for example, is raised to it.
  std::uint64_t min_free_bytes = 0;
};

// Descriptors that a store on disk has open at most.
inline constexpr std::uint32_t kStoreDescriptorsMax =
    limits::kOpenPayloadFilesMax + limits::kOpenTableFilesMax + limits::kOpenOtherFilesMax;

// Takes kPayload's values into files of `folder`; all else, and where they lie, into `rows`, which
// nobody else may write to. `guard`, if any, is asked before payload is written.
Result<std::unique_ptr<Store>> open_extent_store(std::unique_ptr<Store> rows,
                                                 std::unique_ptr<Folder> folder,
                                                 const ExtentStoreOptions& options = {},
                                                 std::shared_ptr<SpaceGuard> guard = nullptr);

// RocksDB in `dir`, payload files in `dir`/payload, and in `dir`/acknowledged what says whether any
// change that was acknowledged is missing (numbered_rows.h). Where one is, the logs that it was in
// are kept in `dir`/before_recovery until accept_loss() (kept_logs.h). Payload files are smaller
// than options.file_bytes on a small disk. Opens on a full disk, too.
Result<std::unique_ptr<Store>> open_disk_store(const std::string& dir,
                                               const ExtentStoreOptions& options = {});

}  // namespace precis
