// Stage compact: gathers a head's kept entries directly into its record's sections. Called by
// encode, so that no dense copy of K and V ever exists beside the record.
#pragma once

#include <cstdint>
#include <span>

#include "precis/view.h"

namespace precis::kernels {

// The sections of one head's record, for `count` entries each (record_format.h).
struct Sections {
  std::uint32_t* positions;
  std::uint32_t* seats;
  float* scores;
  std::byte *keys, *values;
};

// Writes entries [first, last) of a head in the order of `kept` (token indices of all its entries).
// Positions are begin + token. `seats` is as long as `kept`, or empty for zeros. scores: [n].
void compact_words(std::uint32_t begin, std::span<const std::uint32_t> kept,
                   std::span<const std::uint32_t> seats, const float* scores, std::uint32_t first,
                   std::uint32_t last, const Sections& out);
// Copies the rows of K or of V of those entries. If rows are whole lines, stream_rows() is faster.
void compact_rows(const HeadsView& view, std::uint32_t head, std::span<const std::uint32_t> kept,
                  std::uint32_t first, std::uint32_t last, std::byte* out);

}  // namespace precis::kernels
