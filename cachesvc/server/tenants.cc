#include "cachesvc/server/tenants.h"

#include <algorithm>

namespace precis {
namespace {

constexpr std::string_view kDefaultTenant = "default";

// Takes as long for a near miss as for a far one.
bool equal_in_constant_time(std::string_view a, std::string_view b) {
  std::size_t difference = a.size() ^ b.size();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace

Tenants::Tenants(const std::vector<TenantConfig>& tenants) : tenants_(tenants) {
  if (tenants_.empty()) tenants_.push_back({std::string(kDefaultTenant), "", "", 1});
}

std::vector<std::string> Tenants::names() const {
  std::vector<std::string> names;
  for (const TenantConfig& tenant : tenants_) names.push_back(tenant.name);
  return names;
}

const TenantConfig* Tenants::find(std::string_view name) const {
  const auto found = std::ranges::find(tenants_, name, &TenantConfig::name);
  return found == tenants_.end() ? nullptr : &*found;
}

bool Tenants::has_same(const Tenants& other, std::string_view name) const {
  const TenantConfig *here = find(name), *there = other.find(name);
  return here != nullptr && there != nullptr && here->token == there->token &&
         here->salt == there->salt;
}

Result<Tenant> Tenants::admit(const msg::Hello& hello) const {
  if (hello.protocol_version != kProtocolVersion) {
    return Status::version("the client speaks protocol version " +
                           std::to_string(hello.protocol_version) + ", this service speaks " +
                           std::to_string(kProtocolVersion) + "; use matching releases");
  }
  const std::string_view name = hello.tenant.empty() ? kDefaultTenant : hello.tenant;
  for (const TenantConfig& tenant : tenants_) {
    if (tenant.name == name &&
        (tenant.token.empty() || equal_in_constant_time(tenant.token, hello.token))) {
      return Tenant{tenant.name, tenant.salt, tenant.weight};
    }
  }
  if (hello.token.empty()) {
    return Status::denied("tenant '" + std::string(name) +
                          "' is not admitted without a token; check the tenant, and give its "
                          "token: PRECIS_TOKEN, precisctl --token, or the token of connect()");
  }
  return Status::denied("tenant '" + std::string(name) +
                        "' is not admitted with this token; check tenant and token");
}

}  // namespace precis
