#include "cachesvc/server/read_tls.h"

namespace precis {

Result<std::shared_ptr<TlsContext>> read_tls(const Config& config) {
  if (config.tls_cert.empty()) return std::shared_ptr<TlsContext>();
  auto context = TlsContext::for_server({config.tls_cert, config.tls_key, config.tls_client_ca});
  if (context.ok()) return context;
  const std::string& why = context.status().message();  // begins with the setting's name
  return Status::invalid(config.origin(why.substr(0, why.find(':'))) + why);
}

}  // namespace precis
