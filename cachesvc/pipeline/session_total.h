// The total of a session: which of its turns is trimmed next, and to what share of its entries.
//
// Old turns are trimmed along their stored scores, the oldest first, down to a common level: a
// little less than the share of its entries that every turn may keep. So a turn is trimmed about
// once, when it gets old. If the total is bytes, that share falls as the conversation grows. The
// level then falls in steps of a fifth, so that a turn is trimmed only so often, and turns at the
// same level can be consolidated. The level also falls by a fifth while that frees too little, down
// to a twentieth. The newest turn is left as it is. So a total that is very small can't be held.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "precis/types.h"

namespace precis {

struct TotalTurn {
  std::uint64_t stored_bytes = 0, full_bytes = 0;
  bool is_held = false;                                 // never trimmed
  std::function<bool(const Budget& level)> can_shrink;  // whether a trim to it removes entries
};
struct TotalTrim {
  std::size_t turn = 0;  // index
  Budget level;
};
// The next trim that a session needs to take at most `total`, a ratio of its full bytes or bytes.
// None: it takes no more, or can't take less. `turns`: from the oldest on.
std::optional<TotalTrim> next_trim(std::span<const TotalTurn> turns, const Budget& total);

}  // namespace precis
