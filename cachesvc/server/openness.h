// Restricts access to the service's files, and warns if others can reach its data.
#pragma once

#include <string>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"
#include "cachesvc/transport/transport.h"

namespace precis {

// Restricts the data directory to its owner (private_dir.h). Logs it if others had access, and
// warns if they still have.
void close_data_dir(Log& log, const std::string& dir);

// Warns about each file with a token or a key that every user can read.
void warn_of_exposed_files(Log& log, const Config& config);

// "off", "on", or "mutual" if clients must show a certificate too.
std::string tls_text(const Config& config);

// Returns a text that says why others on the network may read or change the data of `tenant`, or an
// empty one if they may not. `open`: other hosts reach the service. `encrypted`: TCP uses TLS. The
// text names no other tenant.
std::string exposed_text(const Config& config, bool open, bool encrypted,
                         const std::string& tenant);

// If other hosts reach the service, warns about tenants without a token and TCP without TLS. The
// service accepts such a configuration; the warning says that it protects less than it seems to.
void warn_if_open(Log& log, const Config& config, const Transport& transport,
                  const std::string& address);

// Adds the operator's next step to the error of a data directory that does not open: fsck needs a
// running service. Errors with other codes name it already.
Status with_next_step(const Status& status, const std::string& dir);

}  // namespace precis
