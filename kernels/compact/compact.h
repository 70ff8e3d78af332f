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
void compact_cpu(const HeadsView& keys, const HeadsView& values, std::uint32_t head,
                 std::uint32_t begin, std::span<const std::uint32_t> kept,
                 std::span<const std::uint32_t> seats, const float* scores, std::uint32_t first,
                 std::uint32_t last, const Sections& out);

}  // namespace precis::kernels
