#include "cachesvc/base/capacity_settings.h"

#include <string>

namespace precis {

Result<CapacityPolicy> parse_capacity_policy(std::string_view name) {
  if (name == "value") return CapacityPolicy::kValue;
  if (name == "lru") return CapacityPolicy::kLru;
  return Status::invalid("capacity_policy is '" + std::string(name) + "', must be value or lru");
}

Status check_trim_ladder(std::span<const double> ladder) {
  if (ladder.size() > kTrimLadderMax) {
    return Status::invalid("trim_ladder has " + std::to_string(ladder.size()) +
                           " shares, at most " + std::to_string(kTrimLadderMax) + " are allowed");
  }
  double before = 1;
  for (const double keep : ladder) {
    if (!(keep > 0 && keep < before)) {
      return Status::invalid(
          "trim_ladder must be shares between 0 and 1, each smaller than the one before it, such "
          "as [0.3, 0.2, 0.1, 0.05]");
    }
    before = keep;
  }
  return {};
}

}  // namespace precis
