// Serve's preparation: one layer of a prefix cut at so many first entries of each record, as byte
// ranges of the stored records in the order in which the reader's ServedLayout wants them. No K or
// V is touched.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "precis/catalog_row.h"
#include "precis/kernels.h"
#include "precis/record.h"
#include "precis/served_layout.h"

namespace precis {

// What was read from disk, before it is used: that these are the records of `row`'s layer, whole,
// in place and of no other segment. kCorruption names head and difference.
Status check_records(Bytes records, const SegmentRow& row, std::uint32_t layer);

// What a budget of at most what is stored comes to in entries; kAll is that. kInvalidArgument names
// the limit.
Result<std::uint64_t> cut_entries(const SegmentRow& row, const ModelSpec& model,
                                  const Budget& budget);

// The same, at most what is stored: a larger budget is that.
Result<std::uint64_t> cut_entries_at_most(const SegmentRow& row, const ModelSpec& model,
                                          const Budget& budget);

// A layer's records of KV heads [head_begin, head_begin + num_heads), and what they must be like.
struct LayerShape {
  std::uint32_t layer = 0;
  std::uint32_t head_begin = 0, num_heads = 0;
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;
};

// Views into the records' memory.
struct LayerRecords {
  struct Record {
    kernels::RecordView view;
    Bytes bytes;
  };
  std::uint32_t num_heads = 0;
  std::vector<Record> records;  // [num_links, num_heads]
  std::size_t num_links() const { return records.size() / num_heads; }
  const Record& at(std::size_t link, std::uint32_t head) const {
    return records[link * num_heads + head];
  }
};

// links[link]: that link's records of the layer, of its heads from the first on. kCorruption where
// they are not of this shape.
Result<LayerRecords> open_layer(std::span<const Bytes> links, const LayerShape& shape);

// How many first entries of each record are within its link's cut, entries[link].
std::vector<std::uint32_t> counts_at(const LayerRecords& layer,
                                     std::span<const std::uint64_t> entries);

struct LayerCut {
  std::vector<std::uint32_t> counts;              // [num_links, num_heads]
  std::vector<kernels::Checksum> tail_checksums;  // [num_links, num_heads]
  std::vector<Bytes> ranges;                      // fill ServedLayout::of(counts) without gaps
  std::size_t size_bytes = 0;
};

// The first counts[link, head] entries of each record. `zeros` [kSectionAlign] pads where a record
// has no bytes to pad with; it must be registered memory, as the records are. kCorruption if a
// record does not hold what is asked for or a partial block fails its checksum.
Result<LayerCut> cut_layer(const LayerRecords& layer, std::vector<std::uint32_t> counts,
                           Bytes zeros);

}  // namespace precis
