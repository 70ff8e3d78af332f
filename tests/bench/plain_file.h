// The disk's own ceiling: a plain file, written and read as fast as possible.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "precis/status.h"
#include "precis/view.h"
#include "tests/bench/transport_ceilings.h"

namespace precis::bench {

// A file in the measured folder. The destructor removes it.
class PlainFile {
 public:
  explicit PlainFile(std::string path);
  ~PlainFile();
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  void remove();
  // Creates the file, which must not exist, and writes `groups` of `pieces` of `piece_bytes` from
  // the pool; syncs after each group if `sync`. Starts writeback after each piece, because
  // otherwise the disk is idle until the sync.
  Status write(ColdPool& pool, std::size_t groups, std::size_t pieces, std::size_t piece_bytes,
               bool sync);
  // Appends `bytes`; creates the file if it does not exist.
  Status append(Bytes bytes, bool sync);
  // Reads `size` bytes from offset `begin`, past the page cache; fewer if the file ends earlier.
  // `into` holds one buffer for each concurrent read. All buffers have the same size; `begin`,
  // `size` and the buffers are whole blocks, aligned to a block.
  Status read_direct(std::span<const MutableBytes> into, std::size_t begin, std::size_t size) const;

 private:
  const std::string path_;
  int appending_ = -1;
};

}  // namespace precis::bench
