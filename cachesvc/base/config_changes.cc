#include "cachesvc/base/config_changes.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace precis {
namespace {

struct Setting {
  std::string key, value;
  bool live;
};

// A service that listens with TLS can switch to other TLS files, but cannot turn TLS on or off.
bool stays_with_tls(const Config& running, const Config& next) {
  return !running.tls_cert.empty() && !next.tls_cert.empty();
}

// All settings except the tenants, in the order of deploy/precisd.toml.
std::vector<Setting> settings(const Config& c, bool with_tls) {
  constexpr bool kLive = true, kRestart = false;
  const auto number = [](auto value) { return std::to_string(value); };
  return {
      {"data_dir", c.data_dir, kRestart},
      {"listen", c.listen, kRestart},
      {"memory_bytes", number(c.memory_bytes), kRestart},
      {"memory_wait_ms", number(c.memory_wait_ms), kLive},
      {"device", c.device, kRestart},
      {"compute_threads", number(c.compute_threads), kRestart},
      {"listen_unix", c.listen_unix, kRestart},
      {"tls_cert", c.tls_cert, with_tls},
      {"tls_key", c.tls_key, with_tls},
      {"tls_client_ca", c.tls_client_ca, with_tls},
      {"rdma", c.rdma, kRestart},
      {"tidy_after_ms", number(c.tidy_after_ms), kRestart},    // the store was opened with it
      {"min_free_bytes", number(c.min_free_bytes), kRestart},  // as tidy_after_ms
      {"log_level", c.log_level, kLive},
      {"audit_log", c.audit_log, kLive},
      {"max_requests", number(c.max_requests), kLive},
      {"max_message_bytes", number(c.max_message_bytes),
       kRestart},  // the transport was made with it
      {"max_puts", number(c.max_puts), kLive},
      {"silent_client_ms", number(c.silent_client_ms), kLive},
      {"default_recipe", c.default_recipe, kRestart},
      {"default_recipe_with_profile", c.default_recipe_with_profile, kRestart},
      {"default_keep", number(c.default_keep), kRestart},
  };
}

// Describes a tenant, for example "with a token, weight 2": enough to see a change, and no secret.
std::string tenant_text(const TenantConfig* tenant) {
  if (tenant == nullptr) return "not there";
  return std::string(tenant->token.empty() ? "no token" : "with a token") +
         (tenant->salt.empty() ? "" : ", with a salt") +
         (tenant->weight == 1 ? "" : ", weight " + std::to_string(tenant->weight));
}

std::vector<SettingChange> tenant_changes(const Config& running, const Config& next) {
  std::map<std::string, std::pair<const TenantConfig*, const TenantConfig*>> tenants;
  for (const TenantConfig& tenant : running.tenants) tenants[tenant.name].first = &tenant;
  for (const TenantConfig& tenant : next.tenants) tenants[tenant.name].second = &tenant;
  std::vector<SettingChange> changes;
  for (const auto& [name, both] : tenants) {
    const auto [from, to] = both;
    if (from != nullptr && to != nullptr && *from == *to) continue;
    std::string now = tenant_text(to);
    if (from != nullptr && to != nullptr) {
      if (from->token != to->token) now += ", the token is another";
      if (from->salt != to->salt) now += ", the salt is another";
    }
    changes.push_back({"tenant " + name, tenant_text(from), std::move(now)});
  }
  return changes;
}

}  // namespace

ConfigChanges changes_between(const Config& running, const Config& next) {
  ConfigChanges changes;
  const bool with_tls = stays_with_tls(running, next);
  const auto before = settings(running, with_tls), after = settings(next, with_tls);
  for (std::size_t at = 0; at < before.size(); ++at) {
    if (before[at].value == after[at].value) continue;
    auto& list = before[at].live ? changes.live : changes.restart;
    list.push_back({before[at].key, before[at].value, after[at].value});
  }
  for (SettingChange& change : tenant_changes(running, next)) {
    changes.live.push_back(std::move(change));
  }
  return changes;
}

Config with_live_settings(const Config& running, const Config& next) {
  Config config = running;
  if (stays_with_tls(running, next)) {
    config.tls_cert = next.tls_cert;
    config.tls_key = next.tls_key;
    config.tls_client_ca = next.tls_client_ca;
  }
  config.memory_wait_ms = next.memory_wait_ms;
  config.log_level = next.log_level;
  config.audit_log = next.audit_log;
  config.max_requests = next.max_requests;
  config.max_puts = next.max_puts;
  config.silent_client_ms = next.silent_client_ms;
  config.tenants = next.tenants;
  config.exposed_files = next.exposed_files;
  config.said_at = next.said_at;
  return config;
}

}  // namespace precis
