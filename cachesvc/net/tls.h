// TLS 1.3 by OpenSSL. One context for a listener or a client, one session for a socket.
#pragma once

#include <memory>
#include <span>
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
  // naming the file that is missing or wrong.
  static Result<std::shared_ptr<TlsContext>> for_server(const TlsFiles& files);
  // files.ca is a PEM file, or "system" for what the system trusts.
  static Result<std::shared_ptr<TlsContext>> for_client(const TlsFiles& files);
  ~TlsContext();

  // `host`: a client's: whom the server's certificate must be of. Empty on a server.
  std::unique_ptr<TlsSession> session(const std::string& host) const;

 private:
  struct Impl;
  explicit TlsContext(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class TlsSession {
 public:
  struct Impl;
  explicit TlsSession(std::unique_ptr<Impl> impl);
  ~TlsSession();
  Socket::Io handshake(int socket);
  Socket::Io read(MutableBytes into);
  Socket::Io write(std::span<const Bytes> ranges);
  bool has_buffered() const;
  void say_goodbye();

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis
