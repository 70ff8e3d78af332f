// At the start the service closes to others what they could read, or warns of what they can reach.
#pragma once

#include <string>

#include "cachesvc/base/config.h"
#include "cachesvc/base/log.h"
#include "cachesvc/transport/transport.h"

namespace precis {

// Makes the data directory its owner's alone (private_dir.h); says so where it was not, and warns
// where it can't be.
void close_data_dir(Log& log, const std::string& dir);

// A warning for each file that holds a token or the TLS key and that everybody may read.
void warn_of_exposed_files(Log& log, const Config& config);

// "off", "on", or "mutual" where clients must show a certificate too.
std::string tls_text(const Config& config);

// Why others on the network may read or change what `tenant` has, in words; empty where they may
// not. `open`: other hosts reach the service; `encrypted`: TCP is TLS. Other tenants are not named.
std::string exposed_text(const Config& config, bool open, bool encrypted,
                         const std::string& tenant);

// Warns of tenants without a token and of TCP without TLS, if other hosts reach the service. The
// configuration says who may do what; the log says where that is less than it seems.
void warn_of_strangers(Log& log, const Config& config, const Transport& transport,
                       const std::string& address);

}  // namespace precis
