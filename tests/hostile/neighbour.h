// Two tenants, one of them hostile: measures the honest tenant's calls, alone and with the other
// tenant.
#pragma once

#include "tests/hostile/victim.h"

namespace precis::hostile {

// Measures 32 clients of one tenant: for `seconds` alone, then as long with threads that only keep
// the cores busy, then as long with 32 hostile clients of another tenant.
Finding measure_neighbour(Victim& victim, double seconds);

}  // namespace precis::hostile
