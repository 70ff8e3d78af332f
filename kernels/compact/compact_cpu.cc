#include "kernels/compact/compact.h"

#include <algorithm>
#include <cstring>

namespace precis::kernels {
namespace {

// Rows lie anywhere, so no hardware prefetcher follows; this many are asked for ahead.
constexpr std::size_t kRowsAhead = 8;
constexpr std::size_t kLineBytes = 64;

void copy_row(std::byte* to, const std::byte* from, std::size_t size) {
  std::size_t at = 0;
  for (; at + kLineBytes <= size; at += kLineBytes) std::memcpy(to + at, from + at, kLineBytes);
  std::memcpy(to + at, from + at, size - at);
}

// Rows kept[first, last) of a head, to where the first of all belongs.
void gather_rows(const HeadsView& view, std::uint32_t head, std::span<const std::uint32_t> kept,
                 std::size_t first, std::size_t last, std::byte* out) {
  const std::size_t row_bytes = view.row_bytes();
  for (std::size_t k = first; k < last; ++k) {
    if (k + kRowsAhead < kept.size()) {
      const std::byte* ahead = view.row(head, kept[k + kRowsAhead]);
      for (std::size_t at = 0; at < row_bytes; at += kLineBytes) __builtin_prefetch(ahead + at);
    }
    copy_row(out + k * row_bytes, view.row(head, kept[k]), row_bytes);
  }
}

}  // namespace

void compact_cpu(const HeadsView& keys, const HeadsView& values, std::uint32_t head,
                 std::uint32_t begin, std::span<const std::uint32_t> kept,
                 std::span<const std::uint32_t> seats, const float* scores, std::uint32_t first,
                 std::uint32_t last, const Sections& out) {
  for (std::size_t k = first; k < last; ++k) {
    out.positions[k] = begin + kept[k];
    out.seats[k] = seats.empty() ? 0 : seats[k];
    out.scores[k] = scores[kept[k]];
  }
  gather_rows(keys, head, kept, first, last, out.keys);
  gather_rows(values, head, kept, first, last, out.values);
}

}  // namespace precis::kernels
