// Admits a client as a tenant, unless too many wrong proofs came from its address.
#pragma once

#include <string>

#include "cachesvc/server/tenants.h"
#include "cachesvc/server/wrong_proofs.h"
#include "cachesvc/transport/transport.h"

namespace precis {

// kPermissionDenied with retry_after_ms() during a wait for wrong proofs; otherwise the result of
// Tenants::admit(). Records whether the proof was right.
Result<Tenant> log_in(const Transport::LoginAttempt& attempt, const Tenants& tenants,
                      WrongProofs& wrong_proofs);

}  // namespace precis
