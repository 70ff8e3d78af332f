// The total of a session: which of its turns are trimmed next, and to how many entries.
//
// One score decides what all turns keep, as in one compression of the whole conversation: a turn
// that tells little keeps little. It is the lowest score with which the turns take a little less
// than the total. The oldest turns that have lower entries are trimmed to it, until the total
// holds. A turn that would lose less than a fifth waits, unless the others give too little. So a
// turn is trimmed about once, when it gets old, and again only when its share of the total has
// fallen, because the total is bytes. The newest turn is left as it is; if it is large, the others
// make room for it down to half of what they keep once it is old, and the session takes more than
// its total until then. Each keeps its least entries, so a very small total can't be held. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cachesvc/pipeline/score_curve.h"
#include "precis/types.h"

namespace precis {

struct TotalTurn {
  std::uint64_t stored_bytes = 0, full_bytes = 0;
  std::uint64_t entries = 0;          // stored
  std::uint64_t least_entries = 0;    // no trim leaves fewer
  const ScoreCurve* curve = nullptr;  // of these entries, or of more before trims; none: is held
};
struct TotalTrim {
  std::size_t turn = 0;  // index
  std::uint64_t entries = 0;
};

// `turns`: from the oldest on.
bool is_above(std::span<const TotalTurn> turns, const Budget& total);
// The trims that bring a session within `total`, a ratio of its full bytes or bytes, or as near to
// it as it can get, in their order. Other turns may give more when these have been made.
std::vector<TotalTrim> trims_for(std::span<const TotalTurn> turns, const Budget& total);

}  // namespace precis
