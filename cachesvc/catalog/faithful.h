// Which prefixes are approximations, and to whom.
//
// A segment's KV was computed over its parents as they were read then (SegmentRow::parent_read):
// all that was stored of them, or less. To a reader who gets more of them it is an approximation. A
// prefix is faithful up to a share: who reads every segment at that share, or what is stored where
// that is less, gets no more of any segment's parents than it was computed over. It falls along a
// chain, and changes where a parent is trimmed or put anew.
//
// Shares are of the entries that the tokens had, in parts per million. What is read of the parents
// and what is stored of them count as equal from 95% on: pages and recipes round.
#pragma once

#include <cstdint>
#include <optional>

#include "cachesvc/catalog/segment_node.h"
#include "precis/types.h"

namespace precis {

inline constexpr std::uint32_t kFaithful = 1'000'000;  // at every budget

// Of the chain that ends in `row` on `parent` (null at the root). An entries or bytes budget counts
// as the share that it is of its parents as one segment, which is the least that it can have been;
// a quality as nothing.
std::uint32_t faithful_ppm(const SegmentRow& row, const SegmentNode* parent,
                           const ModelSpec& model);

// How far a prefix must be faithful for who reads at `budget`; none: all. Entries and bytes are
// other shares of other prefixes, so theirs is all, too.
std::uint32_t faithful_for(const std::optional<Budget>& budget);

}  // namespace precis
