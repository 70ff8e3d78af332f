// TLS 1.3 by OpenSSL. A listener or a client has one context.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/net/socket.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX
struct ssl_st;      // and SSL

namespace precis {

struct TlsFiles {
  std::string cert, key;  // PEM; a server must have both, a client has both or none
  std::string ca;         // PEM; the CA that must have signed the peer's certificate
};

// The settings that name a server's files, for messages.
struct TlsKeys {
  const char* cert = "tls_cert";
  const char* key = "tls_key";
  const char* ca = "tls_client_ca";
};

// Thread-safe once created. It reads the files when it is created; create another to renew a
// certificate.
class TlsContext {
 public:
  // With files.ca, clients must show a certificate that this CA signed (mutual TLS).
  // kInvalidArgument for a missing or wrong file; the message begins with its setting: "tls_cert:
  // cannot read ...".
  static Result<std::shared_ptr<TlsContext>> for_server(const TlsFiles& files,
                                                        const TlsKeys& keys = {});
  // files.ca is a PEM file, or "system" for the system's CAs.
  static Result<std::shared_ptr<TlsContext>> for_client(const TlsFiles& files);
  virtual ~TlsContext() = default;

  // Starts TLS on a new socket. `host`: on a client, the name that the server's certificate must
  // have; on a server, empty.
  virtual std::unique_ptr<Socket> wrap(Descriptor socket, const std::string& host) const = 0;
  // Returns a new reference to the settings for code that has sockets of another kind. The caller
  // owns the reference.
  virtual ssl_ctx_st* share() const = 0;
};

// On a client, before the handshake: `host` is the name that the server's certificate must have.
void expect_host(ssl_st* connection, const std::string& host);

}  // namespace precis
