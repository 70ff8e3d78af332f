// Two tenants, one hostile: what the other one's calls take alone and beside it.
#pragma once

#include "tests/hostile/victim.h"

namespace precis::hostile {

// Measures 32 clients of one tenant: `seconds` alone, then as long beside 32 hostile clients of
// another.
Finding measure_neighbour(Victim& victim, double seconds);

}  // namespace precis::hostile
