// The files of a store as they lie in its directory, without RocksDB.
#pragma once

#include <cstdint>
#include <string>

#include "cachesvc/store/space_guard.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// kCorruption where there are files of a store but no CURRENT, which says what belongs to it.
// RocksDB would make a new store in its place, to which the files beside it mean nothing.
Status check_remains(const std::string& dir);

// [blocking] RocksDB would end the process if it found no room as it opens. Gives up the reserve
// and, if that does not do, RocksDB's information logs: an older build's store has no reserve.
// kOutOfSpace, saying how many bytes are lacking.
Status make_room_to_open(SpaceGuard& guard, const std::string& dir);

inline constexpr std::uint32_t kStoreFormat = 2;  // 1 held payload in blob files

// Checks the row that names the format of a store: kVersionMismatch where another build wrote it,
// kCorruption where it does not read.
Status check_stored_format(const std::string& dir, Bytes stored);

// The files in the directory itself, without the reserve, which is room that is kept free.
std::uint64_t bytes_of_files(const std::string& dir);

}  // namespace precis
