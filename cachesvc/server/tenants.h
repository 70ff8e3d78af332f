// Who may connect: the configured tenants, or the one tenant "default" where none are.
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
    std::string token;  // empty: the tenant has none, and the proof was not looked at
  };
  // kVersionMismatch for another protocol version, kPermissionDenied for an unknown tenant or a
  // wrong proof; the message does not say which.
  Result<Admitted> admit(const Hello& hello, const Nonce& challenge) const;
  // Takes up tenants that were configured anew. A new weight counts at once for the Tenants that
  // were handed out before.
  void take_up(const std::vector<TenantConfig>& tenants);
  // The tenant of a Hello that was admitted.
  Tenant named(const std::string& tenant) const;

  // The name under which a tenant is configured that a client calls so: "default" for none.
  static std::string name_of(const std::string& tenant);
  // True if a tenant of this name is configured.
  bool has(std::string_view name) const { return find(name) != nullptr; }

  std::vector<std::string> names() const;
  // True if a tenant of this name is here as it is in `other`: with the same token and salt.
  bool has_same(const Tenants& other, std::string_view name) const;

 private:
  const TenantConfig* find(std::string_view name) const;
  Tenant tenant_of(const TenantConfig& known) const;
  std::vector<TenantConfig> tenants_;
  std::map<std::string, Weight, std::less<>> weights_;  // of each of them
};

}  // namespace precis
