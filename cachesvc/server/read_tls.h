// The service's TLS settings, read from the configured files.
#pragma once

#include <memory>

#include "cachesvc/base/config.h"
#include "cachesvc/net/tls.h"

namespace precis {

// Both return null if the configuration names no files for the port, and kInvalidArgument if a file
// cannot be used, with the line of the configuration that names it.
Result<std::shared_ptr<TlsContext>> read_tls(const Config& config);        // of `listen`
Result<std::shared_ptr<TlsContext>> read_admin_tls(const Config& config);  // of `admin`

}  // namespace precis
