// The HTTP server of the admin port, on its own thread. It bounds what clients can use up: their
// number, the sizes of headers and bodies, and the time that each step of a request takes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cachesvc/admin/http_message.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/net/tls.h"

namespace precis::admin {

class HttpServer {
 public:
  using Reply = std::function<void(HttpResponse)>;  // any thread; call it once
  // All are called on the server's thread.
  struct Handlers {
    // Called before the body is read. A response refuses the request and closes the connection.
    std::function<std::optional<HttpResponse>(const HttpRequest&)> check;
    // Whether a request that check() lets pass needs no token. After any other request, the
    // connection counts as an operator's.
    std::function<bool(const HttpRequest&)> is_for_strangers;
    // A Reply may come at any time, also after the server was destroyed. Then nobody reads it.
    std::function<void(HttpRequest, Reply)> handle;
    // Called when a client is turned away because its TLS handshake was invalid or late.
    std::function<void(const std::string& from, const Status& why)> refused;
  };
  // `address`: IP:PORT, [IPv6]:PORT or localhost:PORT; port 0 picks one. kInvalidArgument if it is
  // of another form, kUnavailable if it cannot be bound. A null `tls`: without TLS.
  static Result<std::unique_ptr<HttpServer>> listen(const std::string& address, Runtime& runtime,
                                                    std::shared_ptr<TlsContext> tls,
                                                    Handlers handlers);
  // Closes all connections and ends the thread.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  const std::string& address() const;  // the bound address
  // New connections use these settings. Only for a server with TLS. Any thread.
  void use_tls(std::shared_ptr<TlsContext> tls);
  // Returns a function that runs functions on the server's thread. It may be called on any thread
  // and at any time; functions that come too late do not run.
  std::function<void(std::function<void()>)> poster() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis::admin
