// Stage compact: gathers what a head keeps straight into its record's sections. Run by encode, so
// that no dense copy of K and V ever exists beside the record.
#pragma once

#include <cstdint>
#include <span>

#include "precis/view.h"

namespace precis::kernels {

// Where one head's sections lie, as wide as count rows each (record_format.h).
struct Sections {
  std::uint32_t* positions;
  std::uint32_t* seats;
  float* scores;
  std::byte *keys, *values;
};

// Entries [first, last) of a head's, in the order of `kept` (token indices of all its entries).
// positions are begin + token. `seats` is as long as `kept`, or empty for zeros. scores: [n].
void compact_words(std::uint32_t begin, std::span<const std::uint32_t> kept,
                   std::span<const std::uint32_t> seats, const float* scores, std::uint32_t first,
                   std::uint32_t last, const Sections& out);
// Their rows of K or of V; where they are whole lines, stream_rows() does it sooner.
void compact_rows(const HeadsView& view, std::uint32_t head, std::span<const std::uint32_t> kept,
                  std::uint32_t first, std::uint32_t last, std::byte* out);

}  // namespace precis::kernels
