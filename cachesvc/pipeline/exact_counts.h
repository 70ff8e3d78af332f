// How many first entries of every record a reader is to be served, to the entry: at each link's
// cut, without those past the end of the match, and in whole pages where its memory is pages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cachesvc/pipeline/cut.h"

namespace precis {

struct ReaderCut {
  std::span<const std::uint64_t> entries;  // [num_links] the cut of each
  std::uint32_t align = 1;                 // entries of a page
  // Where the last link is matched in part, only its entries before this position are the reader's.
  bool in_part = false;
  std::uint32_t matched_end = 0;
};

// Of one layer. A reader's entries of a (layer, head), over all links, are what the cuts hold; with
// `align` > 1 the nearest multiple of it (the larger of two), at least one page and at most what is
// stored in whole pages: 0 where that is less than one. The difference is taken from or given to
// the last link, and as far as it does not reach, to those before it.
struct LayerCounts {
  // [num_links, num_heads] first entries to be served. Of a link matched in part so many that the
  // last of them is the reader's.
  std::vector<std::uint32_t> counts;
  std::vector<std::uint32_t> plan;  // [num_heads] the reader's
};
LayerCounts count_layer(const LayerRecords& layer, const ReaderCut& cut);

}  // namespace precis
