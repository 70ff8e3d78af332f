#include "cachesvc/base/config_changes.h"

#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "cachesvc/base/config_settings.h"

namespace precis {
namespace {

// A port with TLS can switch to other TLS files, but cannot turn TLS on or off.
bool is_adopted(Adopted when, const Config& running, const Config& next) {
  const auto stays = [&](std::string Config::*cert) {
    return !(running.*cert).empty() && !(next.*cert).empty();
  };
  switch (when) {
    case Adopted::kRestart: return false;
    case Adopted::kReload: return true;
    case Adopted::kIfTls: return stays(&Config::tls_cert);
    case Adopted::kIfAdminTls: return stays(&Config::admin_tls_cert);
  }
  return false;
}

std::string text_of(const std::string& value) { return value; }
std::string text_of(const Budget& value) { return value.to_string(); }
std::string text_of(bool value) { return value ? "true" : "false"; }
// Different numbers have different texts.
template <typename Number>
std::string text_of(Number value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.begin(), text.end(), value).ptr};
}
std::string text_of(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + text_of(value);
  return "[" + text + "]";
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
      if (from->newest_token() != to->newest_token()) now += ", the token is another";
      if (from->salt != to->salt) now += ", the salt is another";
    }
    changes.push_back({"tenant " + name, tenant_text(from), std::move(now)});
  }
  return changes;
}

}  // namespace

std::string tenant_text(const TenantConfig* tenant) {
  if (tenant == nullptr) return "not there";
  const auto limit = [](std::uint64_t value, const std::string& what) {
    return value == 0 ? "" : ", at most " + std::to_string(value) + " " + what;
  };
  return std::string(tenant->needs_token() ? "with a token" : "no token") +
         (tenant->role == "writer" ? "" : ", " + tenant->role) +
         (tenant->salt.empty() ? "" : ", with a salt") +
         (tenant->weight == 1 ? "" : ", weight " + std::to_string(tenant->weight)) +
         limit(tenant->max_disk_bytes, "B on the disk") +
         limit(tenant->max_memory_bytes, "B in memory") + limit(tenant->max_puts, "puts") +
         limit(tenant->max_requests_per_s, "requests per second");
}

ConfigChanges changes_between(const Config& running, const Config& next) {
  ConfigChanges changes;
  each_setting([&](const char* key, auto member, Adopted when) {
    if (running.*member == next.*member) return;
    auto& list = is_adopted(when, running, next) ? changes.live : changes.restart;
    list.push_back({key, text_of(running.*member), text_of(next.*member)});
  });
  // The path may be the same although the token in the file has changed.
  if (running.admin_token_file == next.admin_token_file &&
      running.admin_token != next.admin_token) {
    changes.restart.push_back(
        {"admin_token_file", "the token that it had at the start", "another token"});
  }
  for (SettingChange& change : tenant_changes(running, next)) {
    changes.live.push_back(std::move(change));
  }
  return changes;
}

Config with_live_settings(const Config& running, const Config& next) {
  Config config = running;
  each_setting([&](const char*, auto member, Adopted when) {
    if (is_adopted(when, running, next)) config.*member = next.*member;
  });
  config.tenants = next.tenants;
  config.exposed_files = next.exposed_files;
  config.said_at = next.said_at;
  return config;
}

}  // namespace precis
