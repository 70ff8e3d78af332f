// Serve's preparation: one layer of a prefix cut at each link's budget, as byte ranges of the
// stored records in the order in which the reader's ServedLayout wants them. No K or V is touched.
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

struct LayerCut {
  std::vector<std::uint32_t> counts;              // [num_links, num_kv_heads]
  std::vector<kernels::Checksum> tail_checksums;  // [num_links, num_kv_heads]
  std::vector<Bytes> ranges;                      // fill ServedLayout::of(counts) without gaps
  std::size_t size_bytes = 0;
};

// records[link]: that link's records of the layer; entries[link]: its cut. `zeros` [kSectionAlign]
// pads where a record has no bytes to pad with; it must be registered memory, as the records are.
// kCorruption if a record is not what its place says.
Result<LayerCut> cut_layer(std::span<const Bytes> records, std::span<const std::uint64_t> entries,
                           std::uint32_t layer, std::uint32_t num_kv_heads, std::uint32_t head_dim,
                           Dtype dtype, Bytes zeros);

}  // namespace precis
