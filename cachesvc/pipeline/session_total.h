// The total of a session: which of its turns are trimmed next, and to how many entries.
//
// One score decides what all turns keep, as in one compression of the whole conversation: a turn
// with low scores keeps little. It is the lowest score with which the turns, as they were put,
// would take a little less than the total. Old turns are trimmed to it, except for those that would
// lose less than a fifth: they wait until the session takes more than its total. So a turn is
// trimmed about once, when it gets old, and again only when its share of the total has fallen,
// because the total is bytes.
//
// The newest turn is left as it is. For a total in bytes, the others make room for it, down to half
// of what they keep once it is old. For a share they do not: what a turn loses while a conversation
// is short never comes back. So a session can take more than its total by a part of its newest
// turn. Each turn keeps its least entries, so a very small total can't be held. Pure.
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
  const ScoreCurve* curve = nullptr;  // of these entries, or of more before trims; null: is held
};
struct TotalTrim {
  std::size_t turn = 0;  // index
  std::uint64_t entries = 0;
};

// Whether the turns need no trim if none was trimmed yet. It looks at no curve.
bool all_fit(std::span<const TotalTurn> turns, const Budget& total);
// The trims, in order, that bring a session within `total` (a ratio of its full bytes, or bytes),
// or as near to it as they can. Once they are made, another call may return trims of other turns.
// `turns`: from the oldest on.
std::vector<TotalTrim> trims_for(std::span<const TotalTurn> turns, const Budget& total);

}  // namespace precis
