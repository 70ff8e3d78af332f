// A check of RocksDB's tables before RocksDB opens them.
//
// RocksDB 7.8 parses the properties of a table before it verifies their checksum. A build with
// assertions, such as Debian's, then aborts on a damaged byte. All other blocks are verified first.
#pragma once

#include <string>

#include "precis/status.h"

namespace precis {

// kCorruption if the properties of a table in `dir` do not match their checksum, also of a table
// that RocksDB would delete. Any other damage, and a format that this function does not know, is
// left to RocksDB.
Status check_tables(const std::string& dir);

}  // namespace precis
