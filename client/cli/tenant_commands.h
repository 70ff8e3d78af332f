// precisctl tenant: the tenants of a service, for its admins.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "client/cli/commands.h"

namespace precis::cli {

// A tenant of the service, and what is to be changed of it.
struct TenantChange {
  std::string name, role, salt;
  std::optional<std::uint32_t> weight, max_puts, max_requests_per_s;
  std::optional<std::uint64_t> max_disk_bytes, max_memory_bytes;  // 0: no limit
  bool below_use = false;  // a max_disk_bytes below what is stored removes segments
  bool drop_old = false, purge = false, yes = false;
};

// add and rotate print the new token, which no other command can.
Status add_tenant(Context context, const TenantChange& tenant);
Status list_tenants(Context context);
Status show_tenant(Context context, const std::string& name);
Status set_tenant(Context context, const TenantChange& change);
Status rotate_token(Context context, const TenantChange& how);
// kConflict if it has segments, unless `purge`, which asks first.
Status remove_tenant(Context context, const TenantChange& how);

}  // namespace precis::cli
