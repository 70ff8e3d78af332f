// The service's TLS settings, read from the configured files.
#pragma once

#include <memory>

#include "cachesvc/base/config.h"
#include "cachesvc/net/tls.h"

namespace precis {

// Null if the configuration names no files. kInvalidArgument with the line that names a wrong file.
Result<std::shared_ptr<TlsContext>> read_tls(const Config& config);

}  // namespace precis
