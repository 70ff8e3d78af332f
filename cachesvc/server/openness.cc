#include "cachesvc/server/openness.h"

#include <algorithm>

#include "cachesvc/base/private_dir.h"

namespace precis {
namespace {

constexpr char kInTheClear[] =
    "K, V and messages are not encrypted: others on the network can read them";
constexpr char kNoTenants[] =
    "any client that reaches the address may read, write and remove everything";
constexpr char kNoToken[] =
    "a tenant needs no token, so any client that reaches the address may act as it";

}  // namespace

void close_data_dir(Log& log, const std::string& dir) {
  const auto [was_open, left_open] = make_private(dir);
  if (!was_open) return;
  if (left_open.ok()) {
    log.info("data directory closed to other users", {{"data_dir", dir}});
  } else {
    log.warn("other users of this machine may read the data directory",
             {{"data_dir", dir}, {"why", left_open.message()}});
  }
}

void warn_of_exposed_files(Log& log, const Config& config) {
  for (const std::string& file : config.exposed_files) {
    log.warn("a file with a token or a key can be read by every user of this machine",
             {{"file", file}, {"instead", "chmod o-r, or token_file with LoadCredential"}});
  }
}

std::string tls_text(const Config& config) {
  if (config.tls_cert.empty()) return "off";
  return config.tls_client_ca.empty() ? "on" : "mutual";
}

std::string exposed_text(const Config& config, bool open, bool encrypted,
                         const std::string& tenant) {
  if (!open) return {};
  std::string text = encrypted ? "" : std::string(kInTheClear) + " (set tls_cert and tls_key)";
  const auto own = std::ranges::find(config.tenants, tenant, &TenantConfig::name);
  const bool has_token = own != config.tenants.end() && own->needs_token();
  if (has_token) return text;
  if (!text.empty()) text += "; ";
  return text + (config.tenants.empty() ? kNoTenants : kNoToken) + " (give each tenant a token)";
}

void warn_if_open(Log& log, const Config& config, const Transport& transport,
                  const std::string& address) {
  if (!transport.is_open_to_hosts()) return;
  if (!transport.is_encrypted()) {
    log.warn(kInTheClear, {{"address", address}, {"instead", "set tls_cert and tls_key"}});
  }
  if (config.tenants.empty()) {
    log.warn(kNoTenants, {{"address", address}, {"instead", "give each [[tenant]] a token"}});
  }
  for (const TenantConfig& tenant : config.tenants) {
    if (tenant.needs_token()) continue;
    log.warn(kNoToken, {{"tenant", tenant.name}, {"address", address}});
  }
}

Status with_next_step(const Status& status, const std::string& dir) {
  std::string next;
  if (status.code() == StatusCode::kCorruption) {
    next = "the store in " + dir +
           " is damaged: restore a copy of it, or move it away and start with an empty directory; "
           "clients then put their prefixes again";
  }
  if (status.code() == StatusCode::kOutOfSpace) {
    next = "free space on the disk of " + dir + " and start again";
  }
  return next.empty() ? status : Status(status.code(), status.message() + "; " + next);
}

}  // namespace precis
