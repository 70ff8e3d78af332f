// Who may connect: the configured tenants, or the one tenant "default" where none are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/base/config.h"
#include "cachesvc/pipeline/tenant.h"
#include "precis/messages.h"

namespace precis {

class Tenants {
 public:
  explicit Tenants(const std::vector<TenantConfig>& tenants);

  // kVersionMismatch for another protocol version, kPermissionDenied for an unknown tenant or a
  // wrong token (the message does not say which) or none, in that order.
  Result<Tenant> admit(const msg::Hello& hello) const;

 private:
  std::vector<TenantConfig> tenants_;
};

}  // namespace precis
