#include "cachesvc/base/tenant_config.h"

#include "precis/limits.h"
#include "precis/role.h"

namespace precis {

std::vector<std::string> problems_of(const TenantConfig& tenant) {
  std::vector<std::string> problems;
  const std::string who = "tenant '" + tenant.name + "'";
  if (tenant.name.empty() || tenant.name.size() > limits::kNameBytesMax) {
    problems.push_back("tenant name '" + tenant.name + "' must have 1 to " +
                       std::to_string(limits::kNameBytesMax) + " bytes");
  }
  if (tenant.weight < 1 || tenant.weight > limits::kTenantWeightMax) {
    problems.push_back(who + " has weight " + std::to_string(tenant.weight) + ", must be in [1, " +
                       std::to_string(limits::kTenantWeightMax) + "]");
  }
  const auto role = parse_role(tenant.role);
  if (!role.ok()) problems.push_back(who + ": " + role.status().message());
  if (role.ok() && *role == Role::kAdmin && !tenant.needs_token()) {
    problems.push_back(who +
                       " has the role admin and no token, so anybody could manage the "
                       "tenants: give it a token or a token_file");
  }
  return problems;
}

Status check_tenant(const TenantConfig& tenant) {
  std::string text;
  for (const std::string& each : problems_of(tenant)) text += (text.empty() ? "" : "; ") + each;
  return text.empty() ? Status() : Status::invalid(text);
}

}  // namespace precis
