// Profile tables from the measured worth of entries: LU-KV's offline solver (D10) and HeadKV-like
// weights (policies/budgets.md, "Building a profile").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "precis/status.h"

namespace precis::kernels {

// worth[c]: the oracle importance of the entries of head c (layer * num_kv_heads + head), finite
// and not negative. prune_curves() takes the ranked entries only, best-scored first.
using HeadsWorth = std::span<const std::span<const float>>;

// The share of each head's entries that is pruned when 1%, 2%, ... 99% of all entries are, in the
// layout of Profile: [Profile::kCurveRows, heads], rising along each head's curve.
//
// A head loses its worst-scored entries first, whatever their worth. The slopes of the lower convex
// hull of that loss are the isotonic (non-increasing) regression of the worth in the scorer's
// order. The next entries are pruned from the head whose hull has the smallest slope there (ties:
// the lower head; within a head, from its end). This is optimal for the hulls (LU-KV, Eq. 10), and
// for the loss itself unless a head stops within a segment of its hull.
//
// Every head has `num_tokens` entries. `protected_count` of them are never pruned and are not in
// `worth`; in addition, at least 1% of a head's entries stays. Entries are rounded to the nearest
// integer, halves upwards. Once nothing is left to prune, rows repeat.
//
// kInvalidArgument, naming the field: no heads, no tokens, more protected entries than tokens, a
// head whose length is not num_tokens - protected_count, a worth that is negative or not finite.
Result<std::vector<float>> prune_curves(HeadsWorth worth, std::uint32_t num_tokens,
                                        std::uint32_t protected_count);

// How many of each head's entries are among the best `share` of all heads' entries by worth (ties:
// the lower head; at least one entry), as a share of the head's own entries, [heads].
//
// kInvalidArgument, naming the field: no heads, a head without entries, a share outside (0, 1], a
// worth that is negative or not finite.
Result<std::vector<float>> head_weights(HeadsWorth worth, double share);

}  // namespace precis::kernels
