#include "cachesvc/admin/http_server.h"

#include <utility>

#include "cachesvc/admin/beast.h"
#include "cachesvc/admin/http_session.h"
#include "cachesvc/net/address.h"
#include "precis/limits.h"

namespace precis::admin {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptAgain{100};  // after an error, such as no descriptor

Result<tcp::endpoint> endpoint_of(const std::string& address) {
  PRECIS_ASSIGN(const HostPort parts, split_address(address));
  error_code error;
  const auto ip =
      asio::ip::make_address(parts.host == "localhost" ? "127.0.0.1" : parts.host, error);
  if (error) return Status::invalid("'" + parts.host + "' must be an IP address or localhost");
  return tcp::endpoint(ip, parts.number);
}

}  // namespace

struct HttpServer::Impl {
  Impl(Runtime& runtime, std::shared_ptr<TlsContext> tls, Handlers handlers)
      : thread(runtime.make_executor("admin", 1)) {
    shared->tls = std::move(tls);
    shared->handlers = std::move(handlers);
  }

  Status open(const tcp::endpoint& endpoint) {
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
    if (error) return to_status(error, "listen");
    const auto bound = acceptor.local_endpoint(error);
    if (error) return to_status(error, "listen");
    const std::string host = bound.address().to_string();
    address =
        (bound.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(bound.port());
    return {};
  }

  void accept() {
    acceptor.async_accept([this](const error_code& error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {
        again.expires_after(kAcceptAgain);
        return again.async_wait([this](const error_code& ended) {
          if (!ended) accept();
        });
      }
      error_code gone;
      const auto peer = socket.remote_endpoint(gone);
      if (!gone) {
        auto link = std::make_unique<HttpLink>(std::move(socket), shared->tls.get());
        serve_session({io, std::move(link), peer.address().to_string()}, shared);
      }
      accept();
    });
  }

  // Replies have weak references: they may come after the server's end.
  std::shared_ptr<asio::io_context> io = std::make_shared<asio::io_context>(1);
  std::shared_ptr<HttpShared> shared = std::make_shared<HttpShared>();
  tcp::acceptor acceptor{*io};
  asio::steady_timer again{*io};
  std::string address;
  std::unique_ptr<Executor> thread;  // destroyed first: its function ends then
};

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string& address, Runtime& runtime,
                                                       std::shared_ptr<TlsContext> tls,
                                                       Handlers handlers) {
  PRECIS_ASSIGN(const tcp::endpoint endpoint, endpoint_of(address));
  auto impl = std::make_unique<Impl>(runtime, std::move(tls), std::move(handlers));
  PRECIS_TRY(impl->open(endpoint));
  impl->accept();
  impl->thread->post([io = impl->io.get()] { io->run(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() { impl_->io->stop(); }

const std::string& HttpServer::address() const { return impl_->address; }

void HttpServer::use_tls(std::shared_ptr<TlsContext> tls) {
  poster()([weak = std::weak_ptr(impl_->shared), tls = std::move(tls)] {
    if (const auto shared = weak.lock()) shared->tls = tls;
  });
}

std::function<void(std::function<void()>)> HttpServer::poster() const {
  return [weak = std::weak_ptr(impl_->io)](std::function<void()> fn) {
    if (const auto io = weak.lock()) asio::post(*io, std::move(fn));
  };
}

}  // namespace precis::admin
