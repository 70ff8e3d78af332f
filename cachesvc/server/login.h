// Lets a stranger in as a tenant, unless too many wrong proofs came from its address.
#pragma once

#include <string>

#include "cachesvc/server/tenants.h"
#include "cachesvc/server/wrong_proofs.h"
#include "cachesvc/transport/transport.h"

namespace precis {

// The token of the stranger's tenant; empty where it has none. kRejected during a wait for wrong
// proofs, and as Tenants::admit(). Notes how the proof was.
Result<std::string> log_in(const Transport::Stranger& stranger, const Tenants& tenants,
                           WrongProofs& wrong_proofs);

}  // namespace precis
