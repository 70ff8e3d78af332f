// Two tenants, one hostile: what the other one's calls take alone and beside it.
#pragma once

#include "tests/hostile/victim.h"

namespace precis::hostile {

// Alone and beside 32 hostile clients, half of `seconds` each, over 32 clients of the other tenant.
Finding measure_neighbour(Victim& victim, double seconds);

}  // namespace precis::hostile
