// Prepares the push of a layer of a prefix: cuts the records at their first entries. The cut is a
// list of byte ranges of the stored records, in the order of the reader's ServedLayout. No K or V
// is touched.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "precis/catalog_row.h"
#include "precis/kernels.h"
#include "precis/record.h"
#include "precis/served_layout.h"

namespace precis {

// Checks bytes read from disk before they are used: they must be exactly the records of `row`'s
// layer, in order. kCorruption names head and difference.
Status check_records(Bytes records, const SegmentRow& row, std::uint32_t layer);

// Returns the number of entries of a budget, or of all stored entries for kAll. kInvalidArgument,
// naming the limit, if fewer entries are stored.
Result<std::uint64_t> cut_entries(const SegmentRow& row, const ModelSpec& model,
                                  const Budget& budget);

// As cut_entries(), except that a larger budget gives all stored entries.
Result<std::uint64_t> cut_entries_at_most(const SegmentRow& row, const ModelSpec& model,
                                          const Budget& budget);

// How many of the first links of a chain (from the root on) are out of sight in this layer for a
// reader that goes on at token `reader_end`. It gets no entries of them.
std::size_t links_out_of_sight(const ModelSpec& model,
                               std::span<const std::shared_ptr<const SegmentRow>> links,
                               std::uint32_t layer, std::uint32_t reader_end);

// The expected form of a layer's records, and the KV heads [head_begin, head_begin + num_heads).
struct LayerShape {
  std::uint32_t layer = 0;
  std::uint32_t head_begin = 0, num_heads = 0;
  std::uint32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;
};

// The records of a layer; views into their memory.
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

// Opens the shape's heads. links[link] holds that link's records of the layer, from head 0 on.
// kCorruption if the records do not have this shape.
Result<LayerRecords> open_layer(std::span<const Bytes> links, const LayerShape& shape);

// Returns how many first entries of each record are within its link's cut, entries[link]; 0 for the
// links before `first_link`.
std::vector<std::uint32_t> counts_at(const LayerRecords& layer,
                                     std::span<const std::uint64_t> entries,
                                     std::size_t first_link = 0);

struct LayerCut {
  std::vector<std::uint32_t> counts;              // [num_links, num_heads]
  std::vector<kernels::Checksum> tail_checksums;  // [num_links, num_heads]
  std::vector<Bytes> ranges;                      // fill ServedLayout::of(counts) without gaps
  std::size_t size_bytes = 0;
};

// Cuts each record at its first counts[link, head] entries. `zeros` [kSectionAlign] pads the
// sections that the record's own bytes cannot pad; it must be registered memory, like the records.
// kCorruption if a record has fewer entries than asked for, or a partial block fails its checksum.
Result<LayerCut> cut_layer(const LayerRecords& layer, std::vector<std::uint32_t> counts,
                           Bytes zeros);

}  // namespace precis
