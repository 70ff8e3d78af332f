// A connection over which Boost.Beast speaks. Only source files that speak HTTP include this.
#pragma once

#include "cachesvc/base/asio.h"

#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <optional>
#include <string>
#include <utility>

#include "cachesvc/net/tls.h"

namespace precis {

// The bytes of a connection, with TLS or without: an AsyncStream of Beast. Timeouts are those of
// tcp().
class HttpLink {
 public:
  using Tcp = boost::beast::tcp_stream;
  using executor_type = Tcp::executor_type;

  // A null `tls`: without TLS.
  HttpLink(boost::asio::ip::tcp::socket socket, const TlsContext* tls) : tcp_(std::move(socket)) {
    if (tls == nullptr) return;
    boost::asio::ssl::context settings(tls->share());
    tls_.emplace(tcp_, settings);  // keeps a reference to the settings
  }
  HttpLink(const HttpLink&) = delete;
  HttpLink& operator=(const HttpLink&) = delete;

  Tcp& tcp() { return tcp_; }
  executor_type get_executor() { return tcp_.get_executor(); }
  bool is_encrypted() const { return tls_.has_value(); }

  // A handshake is only for TLS, before anything is read or written. A client gives the name that
  // the server's certificate must have.
  template <typename Handler>
  void async_accept(Handler&& handler) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Handler>(handler));
  }
  template <typename Handler>
  void async_begin(const std::string& host, Handler&& handler) {
    expect_host(tls_->native_handle(), host);
    tls_->async_handshake(boost::asio::ssl::stream_base::client, std::forward<Handler>(handler));
  }
  // Ends TLS, and completes when the other side has ended it too. Without TLS, completes at once.
  template <typename Handler>
  void async_finish(Handler&& handler) {
    if (tls_) return tls_->async_shutdown(std::forward<Handler>(handler));
    boost::asio::post(get_executor(), [handler = std::forward<Handler>(handler)]() mutable {
      handler(boost::system::error_code());
    });
  }
  template <typename Buffers, typename Handler>
  auto async_read_some(const Buffers& into, Handler&& handler) {
    if (tls_) return tls_->async_read_some(into, std::forward<Handler>(handler));
    return tcp_.async_read_some(into, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  auto async_write_some(const Buffers& from, Handler&& handler) {
    if (tls_) return tls_->async_write_some(from, std::forward<Handler>(handler));
    return tcp_.async_write_some(from, std::forward<Handler>(handler));
  }

 private:
  Tcp tcp_;
  std::optional<boost::asio::ssl::stream<Tcp&>> tls_;  // over tcp_
};

}  // namespace precis
