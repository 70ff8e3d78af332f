#include "cachesvc/server/read_tls.h"

namespace precis {
namespace {

constexpr TlsKeys kAdminKeys{"admin_tls_cert", "admin_tls_key", "admin_tls_ca"};

Result<std::shared_ptr<TlsContext>> read(const Config& config, const TlsFiles& files,
                                         const TlsKeys& keys) {
  if (files.cert.empty()) return std::shared_ptr<TlsContext>();
  auto context = TlsContext::for_server(files, keys);
  if (context.ok()) return context;
  const std::string& why = context.status().message();  // begins with the setting's name
  return Status::invalid(config.origin(why.substr(0, why.find(':'))) + why);
}

}  // namespace

Result<std::shared_ptr<TlsContext>> read_tls(const Config& config) {
  return read(config, {config.tls_cert, config.tls_key, config.tls_client_ca}, {});
}

Result<std::shared_ptr<TlsContext>> read_admin_tls(const Config& config) {
  return read(config, {config.admin_tls_cert, config.admin_tls_key, config.admin_tls_ca},
              kAdminKeys);
}

}  // namespace precis
