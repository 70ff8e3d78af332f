// Which prefixes are approximations, and to whom.
//
// A segment's KV was computed over some entries of its parents (SegmentRow::parent_entries). A
// reader who gets more of them has an approximation. A prefix is faithful up to a share: a reader
// at that share, or at less, gets of no segment's parents more than it was computed over. The share
// falls along a chain, and changes where a parent is trimmed or put anew.
//
// Shares are of the entries that the tokens had, in parts per million; a reader at a share gets it
// of each segment, or what is stored of that where it is less. Amounts from 95% on count as equal:
// pages and recipes round.
#pragma once

#include <cstdint>
#include <optional>

#include "cachesvc/catalog/segment_node.h"
#include "precis/types.h"

namespace precis {

inline constexpr std::uint32_t kFaithful = 1'000'000;  // at every budget

// The share up to which the chain that ends in `row` on `parent` (null at the root) is faithful.
// Without parent_entries a row counts as computed over all that is stored of its parents where it
// names no budget or all, and over nothing where it names another. Work: the chain's length.
std::uint32_t faithful_ppm(const SegmentRow& row, const SegmentNode* parent,
                           const ModelSpec& model);

// The share up to which a prefix must be faithful for a reader at `budget`. Without one, and for
// entries and bytes, which are another share of each prefix, that is all.
std::uint32_t faithful_for(const std::optional<Budget>& budget);

// Whether a put of `row`, a segment of the same name, would add nothing to `stored`: that is whole,
// and was computed over as many entries of its parents.
bool is_as_good(const SegmentRow& stored, const SegmentRow& row);

}  // namespace precis
