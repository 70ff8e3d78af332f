// Certificates for tests.
#pragma once

#include <string>

#include "cachesvc/net/tls.h"

namespace precis::test {

// Writes a new self-signed certificate for 127.0.0.1 and its key to cert.pem and key.pem in
// `folder`; replaces existing files.
TlsFiles make_certificate(const std::string& folder);

}  // namespace precis::test
