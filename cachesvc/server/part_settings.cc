#include "cachesvc/server/part_settings.h"

#include <sys/resource.h>

#include <algorithm>

namespace precis {
namespace {

// 1/kKeptShare of the arena's size, and at least kKeptBytesLeast, which holds about a million
// blocks of paths.
constexpr std::uint64_t kKeptShare = 4, kKeptBytesLeast = 256u << 20;

}  // namespace

std::size_t descriptors_max() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

std::uint64_t kept_bytes_max(std::uint64_t arena_bytes) {
  return std::max(kKeptBytesLeast, arena_bytes / kKeptShare);
}

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

Catalog::PinnedLimits pinned_limits(const Config& config) {
  const auto share = [&](std::uint64_t limit) {
    return static_cast<std::uint64_t>(config.max_pinned_share * static_cast<double>(limit));
  };
  const DiskQuota::Limits limits = disk_limits(config);
  Catalog::PinnedLimits pinned{share(limits.of_all), {}};
  for (const auto& [tenant, limit] : limits.of_tenant) pinned.of_tenant[tenant] = share(limit);
  return pinned;
}

CapacityManager::Settings capacity_settings(const Config& config) {
  return {*parse_capacity_policy(config.capacity_policy), config.trim_ladder};
}

Consolidator::Settings consolidator_settings(const Config& config) {
  return {config.consolidate, config.consolidate_links};
}

BudgetDefaults budget_defaults(const Config& config) {
  BudgetDefaults defaults;
  defaults.row.recipe = config.default_recipe;
  defaults.row.keep = config.default_keep;
  if (config.default_limit != Config().default_limit) defaults.row.limit = config.default_limit;
  defaults.profile_recipe = config.default_recipe_with_profile;
  return defaults;
}

}  // namespace precis
