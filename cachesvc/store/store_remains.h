// The files of a store as they lie in its directory, without RocksDB.
#pragma once

#include <cstdint>
#include <string>

#include "precis/status.h"

namespace precis {

// kCorruption where there are files of a store but no CURRENT, which says what belongs to it.
// RocksDB would make a new store in its place, to which the files beside it mean nothing.
Status check_remains(const std::string& dir);

// Bytes that RocksDB writes at most as it opens the store: its logs as tables, its list of files
// anew, and some small files.
std::uint64_t bytes_to_open(const std::string& dir);

// Removes RocksDB's information logs, of which there may be some megabytes: they are for people,
// and no start reads them.
void remove_information_logs(const std::string& dir);

// The files in the directory itself, without the reserve, which is room that is kept free.
std::uint64_t bytes_of_files(const std::string& dir);

}  // namespace precis
