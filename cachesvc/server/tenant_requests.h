// Requests of admins about tenants. A reply has no token except a new one.
#pragma once

#include <string>

#include "cachesvc/server/caller.h"

namespace precis {

class TenantRequests {
 public:
  explicit TenantRequests(const Caller& caller)
      : caller_(caller), catalog_(caller.parts.catalog), in_force_(caller.parts.in_force) {}

  Task<Answer> on(msg::AddTenant request);
  Task<Answer> on(msg::ListTenants request);
  Task<Answer> on(msg::ShowTenant request);
  Task<Answer> on(msg::ChangeTenant request);
  Task<Answer> on(msg::RotateToken request);
  Task<Answer> on(msg::RemoveTenant request);

 private:
  // kConflict if the tenant is one of the configuration.
  Status check_not_configured(const std::string& name) const;
  // kConflict if the request gives a disk limit below what the tenant stores, and does not say that
  // this is meant.
  Status check_use(const std::string& name, std::uint64_t limit) const;
  Result<msg::TenantRow> row_of(const std::string& name) const;
  // Stores a change and has the running service apply it.
  Task<Status> change(std::string name, Catalog::TenantChange change);
  // Removes the sessions, segments and models of a tenant.
  Task<Result<msg::Removed>> purge(std::string tenant);

  const Caller& caller_;
  Catalog& catalog_;
  TenantsInForce& in_force_;
};

}  // namespace precis
