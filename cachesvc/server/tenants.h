// The tenants that may connect: the configured ones, or the single tenant "default" if there are
// none.
#pragma once

#include <functional>
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

  struct Admitted {
    Tenant tenant;
    std::string token;  // empty: the tenant has none, and needs no proof
  };
  // kVersionMismatch for another protocol version. kPermissionDenied for an unknown tenant or a
  // wrong proof; the message does not tell which.
  Result<Admitted> admit(const Hello& hello, const Nonce& challenge) const;
  // Applies a new configuration of tenants. A new weight also affects, at once, the Tenant objects
  // that were returned before.
  void apply(const std::vector<TenantConfig>& tenants);
  // The tenant of an admitted Hello.
  Tenant named(const std::string& tenant) const;

  // Returns the configured name for a client's tenant name: "default" for an empty name.
  static std::string name_of(const std::string& tenant);
  // Returns whether a tenant of this name is configured.
  bool has(std::string_view name) const { return find(name) != nullptr; }

  std::vector<std::string> names() const;
  // Returns whether a tenant of this name is in both, with the same token and salt.
  bool has_same(const Tenants& other, std::string_view name) const;

 private:
  const TenantConfig* find(std::string_view name) const;
  Tenant tenant_of(const TenantConfig& known) const;
  std::vector<TenantConfig> tenants_;
  std::map<std::string, Weight, std::less<>> weights_;  // of each tenant
};

}  // namespace precis
