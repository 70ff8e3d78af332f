// The tenants that may connect: those in force, or the single tenant "default" if there are none.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/base/config.h"
#include "cachesvc/pipeline/tenant.h"
#include "precis/greeting.h"

namespace precis {

class Tenants {
 public:
  explicit Tenants(const std::vector<TenantConfig>& tenants);

  // Returns the tenant with the token that the client has proved, empty if it needs none.
  // kVersionMismatch for another protocol version. kPermissionDenied for an unknown tenant or a
  // wrong proof; the message does not tell which.
  Result<Tenant> admit(const Hello& hello, const Nonce& challenge) const;
  // Applies a new list of tenants. A new weight also affects, at once, the Tenant objects that were
  // returned before.
  void apply(const std::vector<TenantConfig>& tenants);
  // The tenant of this name, which must exist, with its newest token.
  Tenant named(const std::string& tenant) const;
  // Whether a client that was admitted as this tenant may stay: the tenant still exists with the
  // same salt and role, and the token is valid.
  bool may_stay(const Tenant& admitted) const;

  // Returns the configured name for a client's tenant name: "default" for an empty name.
  static std::string name_of(const std::string& tenant);
  // Returns whether there is a tenant of this name.
  bool has(std::string_view name) const { return find(name) != nullptr; }

  std::vector<std::string> names() const;

 private:
  const TenantConfig* find(std::string_view name) const;
  Tenant tenant_of(const TenantConfig& known, const std::string& token) const;
  std::vector<TenantConfig> tenants_;
  std::map<std::string, Weight, std::less<>> weights_;  // of each tenant
};

}  // namespace precis
