// The capacity settings that are not plain numbers.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "precis/status.h"

namespace precis {

enum class CapacityPolicy {
  kValue,  // trims and drops whatever loses the least expected prefill per byte
  kLru,    // drops what was used least recently, and trims nothing: a baseline
};
// kInvalidArgument names the possible values.
Result<CapacityPolicy> parse_capacity_policy(std::string_view name);

inline constexpr std::size_t kTrimLadderMax = 16;
// kInvalidArgument unless these are shares between 0 and 1, at most kTrimLadderMax, each smaller
// than the one before it.
Status check_trim_ladder(std::span<const double> ladder);

}  // namespace precis
