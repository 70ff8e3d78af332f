#include "cachesvc/server/tenants.h"

#include <algorithm>
#include <utility>

namespace precis {
namespace {

constexpr std::string_view kDefaultTenant = "default";

}  // namespace

Tenants::Tenants(const std::vector<TenantConfig>& tenants) : tenants_(tenants) {
  if (tenants_.empty()) tenants_.push_back({std::string(kDefaultTenant), "", "", 1});
  for (const TenantConfig& tenant : tenants_) weights_.emplace(tenant.name, tenant.weight);
}

void Tenants::apply(const std::vector<TenantConfig>& tenants) {
  Tenants next(tenants);
  for (auto& [name, weight] : next.weights_) {
    const auto shared = weights_.find(name);
    if (shared == weights_.end()) continue;
    shared->second.set(weight.get());
    weight = shared->second;
  }
  *this = std::move(next);
}

Tenant Tenants::tenant_of(const TenantConfig& known) const {
  return {known.name, known.salt, weights_.at(known.name)};
}

std::string Tenants::name_of(const std::string& tenant) {
  return tenant.empty() ? std::string(kDefaultTenant) : tenant;
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

Tenant Tenants::named(const std::string& tenant) const {
  const TenantConfig* const known = find(name_of(tenant));
  PRECIS_CHECK(known != nullptr);
  return tenant_of(*known);
}

Result<Tenants::Admitted> Tenants::admit(const Hello& hello, const Nonce& challenge) const {
  if (hello.protocol_version != kProtocolVersion) {
    return Status::version("the client speaks protocol version " +
                           std::to_string(hello.protocol_version) + ", this service speaks " +
                           std::to_string(kProtocolVersion) + "; use matching releases");
  }
  const std::string name = name_of(hello.tenant);
  const TenantConfig* const known = find(name);
  // The check of an unknown tenant takes as long as that of a wrong token.
  const std::string token = known == nullptr ? "no such tenant" : known->token;
  const bool right = equal_in_constant_time(client_proof(token, challenge, hello), hello.proof);
  if (known != nullptr && (right || token.empty())) {
    return Admitted{tenant_of(*known), token};
  }
  return Status::denied("tenant '" + name +
                        "' is not admitted with this token, or without one; check the tenant, and "
                        "give its token: PRECIS_TOKEN, precisctl --token, or the token of "
                        "connect()");
}

}  // namespace precis
