// A tenant that may connect: its credentials, role and limits. The configuration has tenants, and
// an admin stores others with the data (cachesvc/server/tenants_in_force.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "precis/status.h"

namespace precis {

struct TenantConfig {
  std::string name;
  std::string token;            // empty: no token is required, unless there are issued ones
  std::string salt;             // part of the root of token paths: another salt is another cache
  std::uint32_t weight = 1;     // a tenant of weight 2 has twice the share of one of weight 1
  std::string token_file = {};  // file with the token (Config::read_tokens()); empty: use `token`
  // Limits of its own; 0: none.
  std::uint64_t max_disk_bytes = 0;      // of its stored records
  std::uint64_t max_memory_bytes = 0;    // that its puts and layers take in memory
  std::uint32_t max_puts = 0;            // in progress at a time
  std::uint32_t max_requests_per_s = 0;  // and as many at once after a pause
  std::string role = "writer";           // parse_role()
  std::vector<std::string> issued = {};  // the valid tokens of a stored tenant, the newest first
  bool is_stored() const { return !issued.empty(); }
  bool needs_token() const { return is_stored() || !token.empty(); }
  // The newest token; empty if it needs none.
  const std::string& newest_token() const { return is_stored() ? issued.front() : token; }
  bool operator==(const TenantConfig&) const = default;
};

// Each wrong value of a tenant, as a message that names the tenant.
std::vector<std::string> problems_of(const TenantConfig& tenant);
// kInvalidArgument with all of them.
Status check_tenant(const TenantConfig& tenant);

}  // namespace precis
