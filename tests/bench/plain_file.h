// The disk's own ceiling: a plain file, written and read as fast as it can be.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "precis/status.h"
#include "precis/view.h"
#include "tests/bench/transport_ceilings.h"

namespace precis::bench {

// In the folder that is measured; gone when destroyed.
class PlainFile {
 public:
  explicit PlainFile(std::string path);
  ~PlainFile();
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  void remove();
  // Makes it, where it is not: `groups` of `pieces` of `piece_bytes` from the pool, synced after
  // each group if `sync`. The disk begins with each piece at once, for else it stands idle until
  // somebody waits.
  Status write(ColdPool& pool, std::size_t groups, std::size_t pieces, std::size_t piece_bytes,
               bool sync);
  // Makes it where it is not, and writes at its end.
  Status append(Bytes bytes, bool sync);
  // `size` bytes from `begin` on around the machine's cache; less where it ends before. As many
  // reads at a time as `into` has places, each of as much as such a place takes (all of them as
  // large, and everything whole blocks, on a block's boundary).
  Status read_direct(std::span<const MutableBytes> into, std::size_t begin, std::size_t size) const;

 private:
  const std::string path_;
  int appending_ = -1;
};

}  // namespace precis::bench
