// Decides which prefixes are approximations, and for which readers.
//
// A segment's KV was computed over some entries of its ancestors (SegmentRow::parent_entries). For
// a reader that gets more of them, the segment is an approximation. A prefix is faithful up to a
// share if a reader at that share or less gets, for every segment, no more of its ancestors than it
// was computed over. The share never rises along a chain. It changes when an ancestor is trimmed or
// put again.
//
// A share is a part of the entries that the tokens had before compression, in parts per million. A
// reader at a share gets that part of each segment, or all stored entries if these are fewer. An
// amount of at least 95% counts as equal, because pages and recipes round.
#pragma once

#include <cstdint>
#include <optional>

#include "cachesvc/catalog/segment_node.h"
#include "precis/types.h"

namespace precis {

inline constexpr std::uint32_t kFaithful = 1'000'000;  // faithful at every budget

// Returns the share up to which the chain that ends in `row` on `parent` (null at the root) is
// faithful. A row without parent_entries counts as computed over all stored entries of its
// ancestors if its parent_read is absent or kAll, and over none otherwise. Work: the chain's
// length.
std::uint32_t faithful_ppm(const SegmentRow& row, const SegmentNode* parent,
                           const ModelSpec& model);

// Returns the share up to which a prefix must be faithful for a reader at `budget`. It is kFaithful
// unless the budget is a ratio: other budgets are a different share of each prefix.
std::uint32_t faithful_for(const std::optional<Budget>& budget);

// Returns whether a put of `row` adds nothing to `stored`, a segment with the same id: `stored` is
// not trimmed, and was computed over as many entries of its ancestors.
bool is_as_good(const SegmentRow& stored, const SegmentRow& row);

}  // namespace precis
