// Which tokens of a segment are protected and where its lag partitions lie. Every stage uses this,
// so that score, select and allocate cannot disagree (policies.md, D3 and D9).
#pragma once

#include <algorithm>
#include <cstdint>

#include "precis/recipe.h"

namespace precis::kernels {

struct SegmentShape {
  std::uint32_t num_tokens = 0;
  std::uint32_t sinks = 0;   // protected: tokens [0, sinks)
  std::uint32_t recent = 0;  // protected: tokens [num_tokens - recent, num_tokens)
  std::uint32_t lag = 1;     // partition p is tokens [sinks + p * lag, sinks + (p + 1) * lag)

  // `begin`: position of the first token. Sinks are the first tokens of the whole path, so a
  // segment that starts later has fewer or none. In a layer that the recipe skips, every token is
  // protected.
  static SegmentShape of(const Recipe& recipe, std::uint32_t layer, std::uint32_t begin,
                         std::uint32_t num_tokens) {
    SegmentShape s;
    s.num_tokens = num_tokens;
    s.lag = std::max(1u, recipe.lag);
    s.sinks = recipe.sinks > begin ? std::min(recipe.sinks - begin, num_tokens) : 0;
    const std::uint32_t rest = num_tokens - s.sinks;
    s.recent = std::min(recipe.recent_tokens(num_tokens), rest);
    if (recipe.protect_tail) s.recent = std::max(s.recent, s.tail());
    if (recipe.scorer == Scorer::kKnorm && layer < recipe.skip_layers) s.recent = rest;
    return s;
  }

  std::uint32_t protected_count() const { return sinks + recent; }
  std::uint32_t num_partitions() const { return (num_tokens - sinks) / lag; }  // full ones
  bool has_scored_partitions() const { return num_partitions() >= 2; }
  // The length of the last full partition and the remainder; of all tokens after the sinks if fewer
  // than two partitions are full.
  std::uint32_t tail() const {
    const std::uint32_t rest = num_tokens - sinks;
    return has_scored_partitions() ? lag + rest % lag : rest;
  }
};

}  // namespace precis::kernels
