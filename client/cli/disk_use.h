// The bytes that a tenant stores, beside a limit of its own or of all tenants together.
#pragma once

#include <cstdint>
#include <string>

#include "precis/messages.h"

namespace precis::cli {

// The bytes that all tenants store and may store. Both are 0 if the service is too old to say them.
struct DiskUse {
  std::uint64_t stored_bytes = 0, limit_bytes = 0;
};
DiskUse disk_use(const msg::Stats& stats);

// Whether the limit of the tenant is that of all tenants, and others store something as well.
bool shares_limit(const msg::ServerStatus& status, const DiskUse& all);

// For example "2.44 MiB of at most 8.00 MiB".
std::string stored_text(const msg::ServerStatus& status, const DiskUse& all);

}  // namespace precis::cli
