// Divides the disk space of a data directory: the space reserved for rows, the low-water mark below
// which payload is refused, and the sizes of files.
#pragma once

#include <cstdint>

namespace precis {

struct DiskBudget {
  // Size of the reserve file, which keeps space free for RocksDB: RocksDB must never find the disk
  // full.
  std::uint64_t reserve_bytes = 0;
  // The low-water mark: payload that would leave less free space is refused.
  std::uint64_t min_free_bytes = 0;
  // Approximate size of a payload file: the free space below the mark must have room to move one
  // file's values.
  std::uint64_t file_bytes = 0;
  // RocksDB's sizes: one memtable, and all files of a table's first level.
  std::uint64_t memtable_bytes = 0, level_bytes = 0;

  // Changes that reduce the stored bytes are refused if they would leave less free space than this.
  std::uint64_t smallest_free_bytes() const { return memtable_bytes / 4; }

  // For a file system of `total_bytes`. `min_free_bytes` is the mark; it is raised to at least the
  // size of the reserve plus one payload file.
  static DiskBudget of(std::uint64_t total_bytes, std::uint64_t min_free_bytes = 0);
};

}  // namespace precis
