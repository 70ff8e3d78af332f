// A prefix of random segments as a service would store and serve it, built with the kernels' own
// records; a test may damage it before it is served.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "precis/client.h"
#include "precis/entry_form.h"
#include "precis/messages.h"

namespace precis::testing {

struct Entry {
  std::uint32_t position, seat;
  float score;
  std::vector<std::byte> key, value;  // before they are encoded
};

struct StoredSegment {
  msg::SegmentInfo info;
  EntryForm form;
  std::vector<std::vector<std::vector<Entry>>> entries;  // [layer][head], by seat
  // [layer][head]: sealed records.
  std::vector<std::vector<std::vector<std::byte>>> records;
};

struct ServedBytes {
  msg::LayerServed message;
  std::vector<std::byte> bytes;
};

ModelSpec small_model(Dtype dtype = Dtype::kBf16);

// Tokens [begin, end), with `entries` kept of its tokens x layers x heads.
StoredSegment random_segment(std::mt19937& random, const ModelSpec& model, std::uint32_t begin,
                             std::uint32_t end, std::uint64_t entries,
                             Encoding encoding = Encoding::kRaw);

// A row of an entry, as a reader of the segment gets it.
std::vector<std::byte> row_as_read(const RowForm& form, const std::vector<std::byte>& row);

// Rebuilds the records after the entries were changed.
void reseal(const ModelSpec& model, StoredSegment& segment);

// The match that a lookup of the whole path would return.
LookupMatch match_of(const ModelSpec& model, const std::vector<StoredSegment>& segments);

// Adds what a lookup at `entries` of each link adds: counts, plan and bytes.
void count_all(LookupMatch& match, const std::vector<StoredSegment>& segments,
               std::uint64_t entries);

// Layer `layer` cut at `entries` [num_links], to be pushed to message.offset.
ServedBytes serve_layer(const ModelSpec& model, const std::vector<StoredSegment>& segments,
                        const std::vector<std::uint64_t>& entries, std::uint32_t layer);
// The same for only heads [head_begin, head_end), with counts[link] [num_layers, those heads]
// entries of each instead of the cut.
ServedBytes serve_counts(const ModelSpec& model, const std::vector<StoredSegment>& segments,
                         const std::vector<std::vector<std::uint32_t>>& counts, std::uint32_t layer,
                         std::uint32_t head_begin, std::uint32_t head_end);

}  // namespace precis::testing
