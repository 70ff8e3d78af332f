// Finds the payload files of a folder, and the dead bytes in them, when the store opens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "cachesvc/store/dead_ranges.h"
#include "cachesvc/store/file_pool.h"
#include "cachesvc/store/payload_store.h"

namespace precis {

// One payload file.
struct ExtentFile {
  std::shared_ptr<FilePool::Handle> file;  // null if missing
  std::uint64_t size = 0;                  // end of all appended bytes
  std::uint64_t live = 0;                  // bytes of live values, in whole blocks
  std::uint64_t punched = 0;               // bytes of punched ranges
  DeadRanges dead;                         // without the punched ranges
  bool sound = true;                       // no values overlap or end behind the file
  bool dirty = false;                      // may have unsynced bytes
  bool named = false;                      // its name is synced
  bool aside = false;
  std::optional<Status> lost;  // why its values may be lost

  // The bytes that it takes.
  std::uint64_t bytes() const { return file ? size - std::min(size, punched) : 0; }
};

struct ExtentScan {
  std::map<std::uint32_t, ExtentFile> files;  // also those that values name, and that are missing
  std::uint64_t missing_bytes = 0;            // of values in missing or short files
};

// `live`: all live values. Reads no values. kVersionMismatch if a newer build wrote a file.
Result<ExtentScan> scan_extents(FilePool& pool, std::span<const Extent> live);

}  // namespace precis
