// How the room of the disk under a data directory is shared out: what is kept free so that rows can
// always be written, from which free space on payload is refused, and how large files may be.
#pragma once

#include <cstdint>

namespace precis {

struct DiskBudget {
  // Room that a reserve file holds for RocksDB, which must never find the disk full.
  std::uint64_t reserve_bytes = 0;
  // The low-water mark: payload that would leave less free than this is refused.
  std::uint64_t min_free_bytes = 0;
  // A payload file's length, about: moving the values of one must fit below the mark.
  std::uint64_t file_bytes = 0;
  // RocksDB's own sizes: one memtable, and all files of a table's first level.
  std::uint64_t memtable_bytes = 0, level_bytes = 0;

  // Changes that make room are refused when they would leave less.
  std::uint64_t smallest_free_bytes() const { return memtable_bytes / 4; }

  // For a file system of `total_bytes`. `min_free_bytes`: the mark; a smaller one than the
  // reserve's size and a payload file's is raised to these.
  static DiskBudget of(std::uint64_t total_bytes, std::uint64_t min_free_bytes = 0);
};

}  // namespace precis
