#include "cachesvc/server/openness.h"

#include "cachesvc/base/private_dir.h"

namespace precis {

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

void warn_of_exposed_tokens(Log& log, const Config& config) {
  for (const std::string& file : config.exposed_files) {
    log.warn("a file with tokens can be read by every user of this machine",
             {{"file", file}, {"instead", "chmod o-r, or token_file with LoadCredential"}});
  }
}

void warn_of_strangers(Log& log, const Config& config, const Transport& transport,
                       const std::string& address) {
  if (!transport.is_open_to_hosts()) return;
  if (!transport.is_encrypted()) {
    log.warn("K, V and messages travel in the clear: others on the network can read them",
             {{"address", address}, {"instead", "set tls_cert and tls_key"}});
  }
  if (config.tenants.empty()) {
    log.warn("whoever reaches the address may read, write and remove everything",
             {{"address", address}, {"instead", "give each [[tenant]] a token"}});
  }
  for (const TenantConfig& tenant : config.tenants) {
    if (!tenant.token.empty()) continue;
    log.warn("a tenant needs no token, so whoever reaches the address may be it",
             {{"tenant", tenant.name}, {"address", address}});
  }
}

}  // namespace precis
