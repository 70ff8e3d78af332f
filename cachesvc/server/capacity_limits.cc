#include "cachesvc/server/capacity_limits.h"

namespace precis {

DiskQuota::Limits disk_limits(const Config& config) {
  DiskQuota::Limits limits{config.max_disk_bytes, {}};
  for (const TenantConfig& tenant : config.tenants) {
    if (tenant.max_disk_bytes > 0) limits.of_tenant.emplace(tenant.name, tenant.max_disk_bytes);
  }
  return limits;
}

PutRoom::Limits memory_limits(const Config& config) {
  PutRoom::Limits limits;
  for (const TenantConfig& tenant : config.tenants) {
    if (tenant.max_memory_bytes > 0) limits.emplace(tenant.name, tenant.max_memory_bytes);
  }
  return limits;
}

CapacityManager::Settings capacity_settings(const Config& config) {
  return {*parse_capacity_policy(config.capacity_policy), config.trim_ladder};
}

}  // namespace precis
