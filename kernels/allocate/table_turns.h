// Seats by a profile's table, of LU-KV or HeadKV (policies/budgets.md, "Profiles").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "precis/joiner.h"
#include "precis/profile.h"

namespace precis::kernels {

// The head, as layer * num_kv_heads + head, that takes each of the first `seats` ranked seats.
// Every head of layer l has dims.tokens(l) entries and holds guarded[l] of them already.
//   curves   a head keeps, at a kept fraction, the count that its curve gives for the segment's
//            tokens; its k-th entry, protected ones included, joins at the fraction where the curve
//            reaches k
//   weights  highest averages over the ranked entries
std::vector<std::uint32_t> table_turns(const Profile& profile, const SegmentDims& dims,
                                       std::span<const std::uint32_t> guarded, std::uint64_t seats);

}  // namespace precis::kernels
