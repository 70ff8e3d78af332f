#include "cachesvc/server/tenants.h"

#include <algorithm>
#include <utility>

#include "precis/limits.h"

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

Tenant Tenants::tenant_of(const TenantConfig& known, const std::string& token) const {
  return {known.name, known.salt, weights_.at(known.name), *parse_role(known.role), token};
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

bool Tenants::may_stay(const Tenant& admitted) const {
  const TenantConfig* const now = find(admitted.name);
  if (now == nullptr || now->salt != admitted.salt || *parse_role(now->role) != admitted.role) {
    return false;
  }
  return now->is_stored() ? std::ranges::find(now->issued, admitted.token) != now->issued.end()
                          : now->token == admitted.token;
}

Tenant Tenants::named(const std::string& tenant) const {
  const TenantConfig* const known = find(name_of(tenant));
  PRECIS_CHECK(known != nullptr);
  return tenant_of(*known, known->newest_token());
}

Result<Tenant> Tenants::admit(const Hello& hello, const Nonce& challenge) const {
  if (hello.protocol_version != kProtocolVersion) {
    return Status::version("the client speaks protocol version " +
                           std::to_string(hello.protocol_version) + ", this service speaks " +
                           std::to_string(kProtocolVersion) + "; use matching releases");
  }
  const std::string name = name_of(hello.tenant);
  const TenantConfig* const known = find(name);
  std::vector<std::string> tokens;
  if (known != nullptr) tokens = known->is_stored() ? known->issued : std::vector{known->token};
  const std::size_t valid = tokens.size();
  // The check of an unknown tenant takes as long as that of a wrong token, however many are valid.
  tokens.resize(std::max(valid, limits::kTokensPerTenantMax), "no such token");
  std::size_t proved = valid;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const Proof right = client_proof(tokens[t], challenge, hello);
    if (equal_in_constant_time(right, hello.proof) && t < valid) proved = t;
  }
  if (known != nullptr && !known->needs_token()) return tenant_of(*known, "");
  if (proved < valid) return tenant_of(*known, tokens[proved]);
  return Status::denied("tenant '" + name +
                        "' is not admitted with this token, or without one; check the tenant, and "
                        "give its token: PRECIS_TOKEN, precisctl --token, or the token of "
                        "connect()");
}

}  // namespace precis
