// Values prepared for O_DIRECT writes.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cachesvc/store/files.h"

namespace precis {

inline bool on_a_block(std::uintptr_t at) { return at % kFileBlockBytes == 0; }

// Prepares values for O_DIRECT writes: whole blocks on block boundaries. Uses a value's bytes in
// place if they are aligned, and copies them otherwise. add() fills it until it is full; pieces()
// is then written.
class DirectBlocks {
 public:
  // Returns how many bytes of `value` fitted.
  std::size_t add(Bytes value) {
    const std::size_t before = value.size();
    while (!value.empty() && pieces_.size() < kPiecesMax) {
      const std::size_t whole = value.size() / kFileBlockBytes * kFileBlockBytes;
      const bool as_it_is = on_a_block(reinterpret_cast<std::uintptr_t>(value.data())) && whole > 0;
      const Bytes piece = as_it_is ? value.first(whole) : copy(value);
      if (piece.empty()) break;
      pieces_.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
      value = value.subspan(std::min(piece.size(), value.size()));
    }
    return before - value.size();
  }

  std::vector<iovec>& pieces() { return pieces_; }
  void clear() {
    pieces_.clear();
    copied_ = 0;
  }

 private:
  static constexpr std::size_t kPiecesMax = 512;  // of the 1024 that one call accepts
  static constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

  // Copies as much of `value` as fits and fills its last block with zeros; empty if nothing fits.
  Bytes copy(Bytes value) {
    if (copies_.bytes().empty()) copies_ = FileBlocks(kCopyBytes);
    const std::size_t size = std::min(value.size(), kCopyBytes - copied_);
    if (size == 0) return {};
    std::byte* const first = copies_.bytes().data() + copied_;
    const std::size_t blocks = whole_blocks(size);
    std::memcpy(first, value.data(), size);
    std::memset(first + size, 0, blocks - size);
    copied_ += blocks;
    return {first, blocks};
  }

  std::vector<iovec> pieces_;
  FileBlocks copies_;
  std::size_t copied_ = 0;
};

}  // namespace precis
