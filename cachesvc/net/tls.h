// TLS 1.3 by OpenSSL. One context for a listener or a client.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/net/socket.h"

namespace precis {

struct TlsFiles {
  std::string cert, key;  // PEM; a server must have both, a client has both or none
  std::string ca;         // PEM: who may sign the peer's certificate
};

// Thread-safe once made. Reads the files when it is made; make it anew to renew a certificate.
class TlsContext {
 public:
  // With files.ca, clients must show a certificate that it signed (mutual TLS). kInvalidArgument
  // for a file that is missing or wrong, beginning with its setting: "tls_cert: cannot read ...".
  static Result<std::shared_ptr<TlsContext>> for_server(const TlsFiles& files);
  // files.ca is a PEM file, or "system" for what the system trusts.
  static Result<std::shared_ptr<TlsContext>> for_client(const TlsFiles& files);
  virtual ~TlsContext() = default;

  // TLS on a new socket. `host`: a client's: whom the server's certificate must be of. Empty on a
  // server.
  virtual std::unique_ptr<Socket> wrap(Descriptor socket, const std::string& host) const = 0;
};

}  // namespace precis
