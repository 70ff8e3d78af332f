#include "kernels/compact/compact.h"

#include <cstring>

#include "kernels/common/lines.h"

namespace precis::kernels {

void compact_words(std::uint32_t begin, std::span<const std::uint32_t> kept,
                   std::span<const std::uint32_t> seats, const float* scores, std::uint32_t first,
                   std::uint32_t last, const Sections& out) {
  for (std::size_t k = first; k < last; ++k) {
    out.positions[k] = begin + kept[k];
    out.seats[k] = seats.empty() ? 0 : seats[k];
    out.scores[k] = scores[kept[k]];
  }
}

void compact_rows(const HeadsView& view, std::uint32_t head, std::span<const std::uint32_t> kept,
                  std::uint32_t first, std::uint32_t last, std::byte* out) {
  // Rows lie at random addresses, so hardware prefetchers do not help; prefetches this many ahead.
  constexpr std::size_t kRowsAhead = 8;
  const std::size_t row_bytes = view.row_bytes();
  for (std::size_t k = first; k < last; ++k) {
    if (k + kRowsAhead < kept.size()) {
      const std::byte* ahead = view.row(head, kept[k + kRowsAhead]);
      for (std::size_t at = 0; at < row_bytes; at += kLineBytes) __builtin_prefetch(ahead + at);
    }
    std::memcpy(out + k * row_bytes, view.row(head, kept[k]), row_bytes);
  }
}

}  // namespace precis::kernels
