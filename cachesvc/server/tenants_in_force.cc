#include "cachesvc/server/tenants_in_force.h"

#include <algorithm>
#include <utility>

#include "cachesvc/server/hit_counts.h"
#include "cachesvc/server/part_settings.h"

namespace precis {
namespace {

bool has_name(const std::vector<TenantConfig>& tenants, std::string_view name) {
  return std::ranges::find(tenants, name, &TenantConfig::name) != tenants.end();
}

bool has_same_tokens(const TenantConfig& a, const TenantConfig& b) {
  return a.token == b.token && a.issued == b.issued;
}

}  // namespace

TenantConfig config_of(const StoredTenant& row) {
  TenantConfig tenant{row.name, "", row.salt, row.weight};
  tenant.role = row.role;
  tenant.max_disk_bytes = row.max_disk_bytes;
  tenant.max_memory_bytes = row.max_memory_bytes;
  tenant.max_puts = row.max_puts;
  tenant.max_requests_per_s = row.max_requests_per_s;
  for (const StoredToken& token : row.tokens) tenant.issued.push_back(token.text);
  return tenant;
}

std::vector<TenantConfig> TenantsInForce::joined(std::vector<TenantConfig> configured) const {
  if (!parts_.config.takes_stored_tenants) return configured;
  std::vector<TenantConfig> all = std::move(configured);
  for (const StoredTenant& row : parts_.catalog.stored_tenants()) {
    if (!has_name(all, row.name)) all.push_back(config_of(row));
  }
  return all;
}

void TenantsInForce::apply() {
  const Config& config = parts_.config;
  parts_.tenants.apply(config.tenants);
  parts_.admission.set_tenants(config.tenants);
  parts_.put_room.set_limits(memory_limits(config));
  parts_.disk_quota.set_limits(disk_limits(config));
  parts_.catalog.set_pinned_limits(pinned_limits(config));
  // A tenant whose tokens have changed has no waits after wrong tokens any more.
  for (const TenantConfig& now : config.tenants) {
    const auto was = std::ranges::find(applied_, now.name, &TenantConfig::name);
    if (was == applied_.end()) parts_.events.forget(now.name);  // of another tenant of this name
    if (was == applied_.end() || !has_same_tokens(*was, now)) parts_.wrong_proofs.erase(now.name);
  }
  for (const TenantConfig& was : applied_) {
    const TenantConfig* const now = find(was.name);
    if (now == nullptr || !has_same_tokens(was, *now)) parts_.end_streams(was.name);
  }
  applied_ = config.tenants;
  parts_.peers.close_unless(
      [this](const Tenant& admitted) { return parts_.tenants.may_stay(admitted); },
      "its tenant was removed, or has another token, salt or role");
}

void TenantsInForce::stored_changed() {
  std::vector<TenantConfig> configured = std::move(parts_.config.tenants);
  std::erase_if(configured, [](const TenantConfig& tenant) { return tenant.is_stored(); });
  parts_.config.tenants = joined(std::move(configured));
  apply();
}

void TenantsInForce::warn() const {
  if (!parts_.config.takes_stored_tenants) return;
  for (const StoredTenant& row : parts_.catalog.stored_tenants()) {
    const TenantConfig* const now = find(row.name);
    if (now == nullptr || now->is_stored()) continue;
    parts_.log.warn("a stored tenant has the name of a configured one, which is in force instead",
                    {{"tenant", row.name}, {"instead", "precisctl tenant rm"}});
  }
  const bool none = std::ranges::all_of(list(), &TenantConfig::is_stored);
  if (none && !list().empty()) {
    parts_.log.warn("the configuration has no tenants: only the stored ones are admitted",
                    {{"tenants", list().size()}});
  }
}

const TenantConfig* TenantsInForce::find(std::string_view name) const {
  const auto found = std::ranges::find(list(), name, &TenantConfig::name);
  return found == list().end() ? nullptr : &*found;
}

msg::TenantRow TenantsInForce::describe(const TenantConfig& tenant, const StoredTenant* row) const {
  msg::TenantRow told;
  told.name = tenant.name;
  told.role = tenant.role;
  told.weight = tenant.weight;
  told.configured = !tenant.is_stored();
  told.max_disk_bytes = tenant.max_disk_bytes;
  told.max_memory_bytes = tenant.max_memory_bytes;
  told.max_puts = tenant.max_puts;
  told.max_requests_per_s = tenant.max_requests_per_s;
  const std::size_t tokens = tenant.is_stored() ? tenant.issued.size() : tenant.needs_token();
  told.tokens = static_cast<std::uint32_t>(tokens);
  if (row != nullptr && tenant.is_stored()) {
    told.token_unix_ms = row->tokens.front().made_unix_ms;
    told.added_unix_ms = row->added_unix_ms;
  }
  const Catalog::Totals totals = parts_.catalog.totals(tenant.name);
  told.models = totals.models;
  told.segments = totals.segments;
  told.sessions = totals.sessions;
  told.stored_bytes = totals.stored_bytes;
  told.original_bytes = totals.original_bytes;
  told.connections = parts_.admission.connections.used_by(tenant.name);
  told.puts = parts_.admission.puts.used_by(tenant.name);
  told.memory_bytes = parts_.put_room.taken_by(tenant.name) + parts_.hot_tier.bytes_of(tenant.name);
  const HitCounts counts = hits_of(parts_.metrics, tenant.name);
  told.hits = counts.hits;
  told.hit_tokens = counts.tokens;
  return told;
}

}  // namespace precis
