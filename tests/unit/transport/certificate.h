// Certificates for tests.
#pragma once

#include <string>

#include "cachesvc/net/tls.h"

namespace precis::test {

// A new certificate for 127.0.0.1 that is its own authority, and its key: cert.pem and key.pem in
// `folder`, over those that are there.
TlsFiles make_certificate(const std::string& folder);

}  // namespace precis::test
