#include "cachesvc/admin/http_stream.h"

#include <array>
#include <chrono>
#include <utility>

#include "cachesvc/admin/beast.h"
#include "precis/limits.h"

namespace precis::admin {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// A client that sends more than this after its request is not one that reads the response.
constexpr std::size_t kReceivedBytesMax = 64u << 10;
constexpr std::chrono::seconds kFinishTime{2};

class HttpStream : public std::enable_shared_from_this<HttpStream> {
 public:
  HttpStream(HttpSocket socket, std::shared_ptr<HttpShared> shared, HttpResponse response)
      : io_(std::move(socket.io)),
        link_(std::move(socket.link)),
        pause_(link_->get_executor()),
        shared_(std::move(shared)),
        response_(std::move(response)) {
    ++shared_->connections;
  }
  ~HttpStream() { --shared_->connections; }
  HttpStream(const HttpStream&) = delete;
  HttpStream& operator=(const HttpStream&) = delete;

  void start() {
    watch();
    write("HTTP/1.1 200 OK\r\nContent-Type: " + response_.content_type +
          "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
          "Connection: close\r\n\r\n");
  }

 private:
  // Notices that the client leaves. This read keeps the object alive.
  void watch() {
    link_->tcp().expires_never();
    link_->async_read_some(asio::buffer(received_into_),
                           [self = shared_from_this()](const error_code& error, std::size_t size) {
                             if (error || (self->received_ += size) > kReceivedBytesMax)
                               return self->close();
                             self->watch();
                           });
  }

  void write(std::string text) {
    text_ = std::move(text);
    link_->tcp().expires_after(std::chrono::seconds(limits::kAdminSendSeconds));
    asio::async_write(*link_, asio::buffer(text_),
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (error) return self->close();
                        self->ask();
                      });
  }

  void ask() {
    if (!link_->tcp().socket().is_open()) return;
    response_.parts([weak_io = io_, weak = weak_from_this()](std::optional<std::string> part) {
      const auto io = weak_io.lock();
      if (io == nullptr) return;
      asio::post(*io, [weak, part = std::move(part)]() mutable {
        if (const auto self = weak.lock()) self->on_part(std::move(part));
      });
    });
  }

  void on_part(std::optional<std::string> part) {
    if (!link_->tcp().socket().is_open()) return close();
    if (!part) return finish();
    if (!part->empty()) return write(std::move(*part));
    pause_.expires_after(std::chrono::milliseconds(limits::kEventPollMs));
    pause_.async_wait([weak = weak_from_this()](const error_code& error) {
      if (const auto self = weak.lock(); self && !error) self->ask();
    });
  }

  // With TLS, the client is told that nothing follows: otherwise it takes the response for
  // truncated. It may not listen any more, so this has a deadline of its own. Nothing is being
  // written now.
  void finish() {
    if (!link_->is_encrypted()) return close();
    pause_.expires_after(kFinishTime);
    pause_.async_wait([weak = weak_from_this()](const error_code& error) {
      if (const auto self = weak.lock(); self && !error) self->close();
    });
    link_->tcp().expires_after(kFinishTime);
    link_->async_finish([self = shared_from_this()](const error_code&) { self->close(); });
  }

  void close() {
    error_code ignored;
    link_->tcp().socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    link_->tcp().close();
    pause_.cancel();
  }

  const std::weak_ptr<asio::io_context> io_;
  const std::unique_ptr<HttpLink> link_;
  asio::steady_timer pause_;
  const std::shared_ptr<HttpShared> shared_;
  const HttpResponse response_;
  std::string text_;  // being written
  std::array<char, 1024> received_into_{};
  std::size_t received_ = 0;
};

}  // namespace

void serve_stream(HttpSocket socket, std::shared_ptr<HttpShared> shared, HttpResponse response) {
  std::make_shared<HttpStream>(std::move(socket), std::move(shared), std::move(response))->start();
}

}  // namespace precis::admin
