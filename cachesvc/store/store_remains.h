// Examines the files in a store's directory without RocksDB.
#pragma once

#include <cstdint>
#include <string>

#include "cachesvc/store/space_guard.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// kCorruption if the directory has files of a store but no CURRENT, which names the files that
// belong to it. RocksDB would create a new store that ignores those files.
Status check_remains(const std::string& dir);

// [blocking] Frees space before RocksDB opens, because RocksDB would end the process if the disk
// were full. Deletes the reserve, then RocksDB's information logs if needed (a store of an older
// build has no reserve). kOutOfSpace with the number of missing bytes.
Status make_room_to_open(SpaceGuard& guard, const std::string& dir);

inline constexpr std::uint32_t kStoreFormat = 2;  // format 1 stored payload in blob files

// Checks the row that stores the format: kVersionMismatch if another build wrote the store,
// kCorruption if the row is unreadable.
Status check_stored_format(const std::string& dir, Bytes stored);

// Bytes of the files directly in the directory, without the reserve, which counts as free space.
std::uint64_t bytes_of_files(const std::string& dir);

}  // namespace precis
