// One connection of the admin port: reads a request, has it answered, and reads the next. Private
// to http_server.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "cachesvc/admin/http_server.h"

namespace precis::admin {

class HttpSession;

// Shared by the sessions of a server. Server's thread only.
struct HttpShared {
  HttpServer::Handlers handlers;
  std::shared_ptr<TlsContext> tls;  // of new connections; null: they are not encrypted
  std::uint32_t connections = 0;
  // Those that may be closed to make room, the oldest first. Each waits for a TLS handshake or a
  // request, or has only made requests that need no token.
  std::list<HttpSession*> evictable;
  std::size_t body_bytes = 0;  // of bodies being read or handled
};

struct HttpSocket;  // beast.h

// Serves the connection until it ends. It keeps itself alive. If there are too many connections,
// one of those that may be closed is closed: the oldest of the address that has most of them. If
// none may be closed, this one is.
void serve_session(HttpSocket socket, std::shared_ptr<HttpShared> shared);

}  // namespace precis::admin
