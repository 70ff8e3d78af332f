#include "kernels/compact/compact.h"

#include <algorithm>
#include <cstring>

namespace precis::kernels {
namespace {

void gather_rows(const HeadsView& view, std::uint32_t head, std::span<const std::uint32_t> kept,
                 std::byte* out) {
  const std::size_t row_bytes = view.row_bytes();
  for (const std::uint32_t token : kept) {
    std::memcpy(out, view.row(head, token), row_bytes);
    out += row_bytes;
  }
}

}  // namespace

void compact_head_cpu(const HeadsView& keys, const HeadsView& values, std::uint32_t head,
                      std::uint32_t begin, std::span<const std::uint32_t> kept,
                      std::span<const std::uint32_t> seats, const float* scores,
                      const Sections& out) {
  for (std::size_t k = 0; k < kept.size(); ++k) {
    out.positions[k] = begin + kept[k];
    out.scores[k] = scores[kept[k]];
  }
  if (seats.empty()) {
    std::fill(out.seats, out.seats + kept.size(), 0u);
  } else {
    std::copy(seats.begin(), seats.end(), out.seats);
  }
  gather_rows(keys, head, kept, out.keys);
  gather_rows(values, head, kept, out.values);
}

}  // namespace precis::kernels
