// The service's TLS, by the files that its configuration names.
#pragma once

#include <memory>

#include "cachesvc/base/config.h"
#include "cachesvc/net/tls.h"

namespace precis {

// Null where it names none. kInvalidArgument with the line that names a wrong file.
Result<std::shared_ptr<TlsContext>> read_tls(const Config& config);

}  // namespace precis
