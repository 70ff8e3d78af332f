// Sessions of valid traffic: recorded first, then repeated with changes to bits, lengths, order,
// descriptors and timing.
#pragma once

#include <cstdint>
#include <functional>

#include "tests/hostile/victim.h"

namespace precis::hostile {

struct MutatedOptions {
  std::uint64_t sessions = 1000;
  std::uint32_t seed = 0;
  unsigned threads = 48;
  std::function<void(std::uint64_t)> progress = nullptr;
};
Finding attack_by_mutation(Victim& victim, const MutatedOptions& options);

}  // namespace precis::hostile
