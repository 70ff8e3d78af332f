// Counts exactly how many first entries of every record a reader gets: the entries within each
// link's cut, without those past the end of the match, and in whole pages if the reader's memory is
// paged.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cachesvc/pipeline/cut.h"

namespace precis {

struct ReaderCut {
  std::span<const std::uint64_t> entries;  // [num_links] the cut of each link
  std::uint32_t align = 1;                 // entries per page
  // If the last link is matched in part, the reader gets only its entries before matched_end.
  bool in_part = false;
  std::uint32_t matched_end = 0;
  std::size_t first_link = 0;  // the layer's links before it are out of sight, and not served
};

// The counts of one layer. For each (layer, head), the reader gets the entries within the cuts of
// all links. With `align` > 1 their number is rounded to the nearest multiple of `align` (halves
// up), at least one page and at most the stored whole pages, or 0 if less than a page is stored.
// The difference is taken from or added to the last link first, then the links before it.
struct LayerCounts {
  // [num_links, num_heads] first entries to serve. For a link matched in part, these end with the
  // last entry that the reader gets.
  std::vector<std::uint32_t> counts;
  std::vector<std::uint32_t> plan;  // [num_heads] the entries that the reader gets
};
LayerCounts count_layer(const LayerRecords& layer, const ReaderCut& cut);

}  // namespace precis
