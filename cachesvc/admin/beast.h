// The only header that includes Boost.Beast, and the connection over which it speaks. Only source
// files of this folder include it.
#pragma once

#include "cachesvc/base/asio.h"

#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cachesvc/net/tls.h"

namespace precis::admin {

// The bytes of an accepted connection, with TLS or without: an AsyncStream of Beast. Timeouts are
// those of tcp().
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

  // Only with TLS; before anything is read or written.
  template <typename Handler>
  void async_handshake(Handler&& handler) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Handler>(handler));
  }
  // Tells the client that nothing follows. With TLS it ends when the client has said so too.
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

// An accepted connection.
struct HttpSocket {
  std::weak_ptr<boost::asio::io_context> io;  // owns what the connection's handlers own
  std::unique_ptr<HttpLink> link;
  std::string from;  // the client's IP address
};

}  // namespace precis::admin
