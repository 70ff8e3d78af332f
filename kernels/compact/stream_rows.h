// Gathers rows of a head with stores that bypass the caches, because no stage reads the rows soon.
// Each row is loaded once and also passed to an `onlooker`. Only for loops that isa.h compiles.
#pragma once

#include <span>

#include "kernels/common/lines.h"
#include "precis/view.h"

namespace precis::kernels {

// Whether rows of this size, from `out` on, are whole lines.
inline bool are_lines(std::size_t row_bytes, const std::byte* out) {
  return row_bytes % kLineBytes == 0 && reinterpret_cast<std::uintptr_t>(out) % kLineBytes == 0;
}

// Lines: a type of lines.h. If kRowBytes is not 0, it is the rows' size, so that the compiler can
// unroll the copy.
template <typename Lines, std::size_t kRowBytes, typename Onlooker>
PRECIS_INLINE void stream_rows_of(const HeadsView& view, std::uint32_t head,
                                  std::span<const std::uint32_t> kept, std::size_t first,
                                  std::size_t last, std::byte* out, Onlooker& onlooker) {
  constexpr std::size_t kRowsAhead = 32;  // as in compact_rows(), into the second-level cache
  const std::size_t row_bytes = kRowBytes == 0 ? view.row_bytes() : kRowBytes;
  const std::byte* rows = view.head(head);
  std::byte* to = out + first * row_bytes;
  for (std::size_t k = first; k < last; ++k) {
    if (k + kRowsAhead < kept.size()) {
      const std::byte* ahead = rows + kept[k + kRowsAhead] * row_bytes;
      for (std::size_t at = 0; at < row_bytes; at += kLineBytes) {
        __builtin_prefetch(ahead + at, 0, 2);
      }
    }
    const std::byte* row = rows + kept[k] * row_bytes;
    for (std::size_t at = 0; at < row_bytes; at += kLineBytes, to += kLineBytes) {
      const auto line = load_line<Lines>(row + at);
      stream_line(to, line);
      onlooker.add(line);
    }
  }
}

// Writes rows kept[first, last) of a head to their places in `out`, where entry 0 of `kept` has the
// first row. Requires are_lines(). Calls onlooker.add() with each line, in order.
template <typename Lines, typename Onlooker>
PRECIS_INLINE void stream_rows(const HeadsView& view, std::uint32_t head,
                               std::span<const std::uint32_t> kept, std::size_t first,
                               std::size_t last, std::byte* out, Onlooker& onlooker) {
  // 64 and 128 channels of one or two bytes.
  switch (view.row_bytes()) {
    case 64: return stream_rows_of<Lines, 64>(view, head, kept, first, last, out, onlooker);
    case 128: return stream_rows_of<Lines, 128>(view, head, kept, first, last, out, onlooker);
    case 256: return stream_rows_of<Lines, 256>(view, head, kept, first, last, out, onlooker);
    default: return stream_rows_of<Lines, 0>(view, head, kept, first, last, out, onlooker);
  }
}

}  // namespace precis::kernels
