// Two tenants, one hostile: what the other one's calls take alone and beside it.
#pragma once

#include "tests/hostile/victim.h"

namespace precis::hostile {

// Of 32 clients of one tenant: `seconds` alone, then as long beside 32 hostile ones of another.
Finding measure_neighbour(Victim& victim, double seconds);

}  // namespace precis::hostile
