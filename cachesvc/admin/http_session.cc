#include "cachesvc/admin/http_session.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <string_view>
#include <utility>

#include "cachesvc/admin/beast.h"
#include "cachesvc/admin/http_stream.h"
#include "precis/limits.h"

namespace precis::admin {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using std::chrono::seconds;

// After a refusal, this much of the body is read, so that the client reads the refusal before it
// notices that the connection is closed.
constexpr std::size_t kDrainBytesMax = 1u << 20;
constexpr seconds kDrainTime{2};
constexpr seconds kHandshakeTime{10};  // of TLS
// A client that has not shown the token has this long to read an answer. Such answers are short.
constexpr seconds kStrangerSendTime{5};

std::string text(boost::string_view view) { return {view.data(), view.size()}; }

std::optional<Method> method_of(http::verb verb) {
  switch (verb) {
    case http::verb::get: return Method::kGet;
    case http::verb::post: return Method::kPost;
    case http::verb::put: return Method::kPut;
    case http::verb::delete_: return Method::kDelete;
    default: return {};
  }
}

HttpResponse unreadable(const error_code& error) {
  if (error == http::error::header_limit) {
    return error_response(
        431, Status::invalid("the header is larger than " +
                             std::to_string(limits::kAdminHeaderBytesMax) + " B, the limit"));
  }
  if (error == http::error::body_limit) {
    return error_response(
        413, Status::invalid("the body is larger than " +
                             std::to_string(limits::kAdminBodyBytesMax) + " B, the limit"));
  }
  return error_response(400, Status::invalid("not an HTTP request: " + error.message()));
}

}  // namespace

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(HttpSocket socket, std::shared_ptr<HttpShared> shared)
      : io_(std::move(socket.io)),
        from_(std::move(socket.from)),
        link_(std::move(socket.link)),
        deadline_(link_->get_executor()),
        shared_(std::move(shared)) {
    ++shared_->connections;
  }
  ~HttpSession() {
    leave_evictable();
    shared_->body_bytes -= body_bytes_;
    --shared_->connections;
  }
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;

  void start() {
    if (!link_->is_encrypted()) return read();
    enter_evictable();
    link_->tcp().expires_after(kHandshakeTime);
    link_->async_accept([self = shared_from_this()](const error_code& error) {
      if (!error) return self->read();
      self->leave_evictable();
      const bool is_late = error == beast::error::timeout;
      if (!is_late && error.category() != asio::error::get_ssl_category()) return;  // it has left
      self->shared_->handlers.refused(
          self->from_,
          Status::denied("TLS: " + (is_late ? "the handshake took too long" : error.message())));
    });
  }
  const std::string& from() const { return from_; }
  // Ends a connection that is evictable.
  void close() {
    leave_evictable();
    deadline_.cancel();  // an answer that comes later is dropped
    link_->tcp().close();
  }

 private:
  void read() {
    enter_evictable();
    shared_->body_bytes -= std::exchange(body_bytes_, 0);
    parser_.emplace();
    parser_->header_limit(limits::kAdminHeaderBytesMax);
    parser_->body_limit(limits::kAdminBodyBytesMax);
    link_->tcp().expires_after(seconds(limits::kAdminHeaderSeconds));
    http::async_read_header(*link_, buffer_, *parser_,
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              self->on_header(error);
                            });
  }
  // Also moves it behind all others.
  void enter_evictable() {
    leave_evictable();
    evictable_ = shared_->evictable.insert(shared_->evictable.end(), this);
  }
  void leave_evictable() {
    if (evictable_) shared_->evictable.erase(*evictable_);
    evictable_.reset();
  }
  // True if the connection ended or was too slow: nobody reads an answer.
  static bool is_gone(const error_code& error) {
    return error == http::error::end_of_stream || error == http::error::partial_message ||
           error == beast::error::timeout ||
           error.category() == asio::error::get_system_category() ||
           error.category() == asio::error::get_ssl_category() ||
           error.category() == asio::ssl::error::get_stream_category();
  }

  void on_header(const error_code& error) {
    if (is_known_) leave_evictable();
    if (error && is_gone(error)) return;
    if (error) return refuse(unreadable(error));
    const auto& header = parser_->get();
    const auto method = method_of(header.method());
    if (!method) {
      return refuse(error_response(405, Status::unsupported("use GET, POST, PUT or DELETE")));
    }
    if (parser_->chunked()) {
      return refuse(error_response(411, Status::invalid("a body needs a Content-Length")));
    }
    auto target = parse_target({header.target().data(), header.target().size()});
    if (!target.ok()) return refuse(error_response(target.status()));
    request_ = {};
    request_.method = *method;
    request_.target = std::move(*target);
    request_.from = from_;
    request_.host = text(header[http::field::host]);
    request_.origin = text(header[http::field::origin]);
    request_.authorization = text(header[http::field::authorization]);
    request_.content_type = text(header[http::field::content_type]);
    request_.if_none_match = text(header[http::field::if_none_match]);
    request_.accept = text(header[http::field::accept]);
    request_.last_event_id = text(header["Last-Event-ID"]);
    if (auto refusal = shared_->handlers.check(request_)) return refuse(std::move(*refusal));
    is_known_ = is_known_ || !shared_->handlers.is_for_strangers(request_);
    if (is_known_) leave_evictable();
    // Some GET requests need no token: nothing is kept or waited for on their behalf.
    if (*method == Method::kGet && parser_->content_length().value_or(0) > 0) {
      return refuse(error_response(413, Status::invalid("a GET request has no body")));
    }
    read_body();
  }

  void read_body() {
    const std::size_t size = parser_->content_length().value_or(0);
    if (shared_->body_bytes + size > limits::kAdminBodiesBytesMax) {
      return refuse(error_response(
          Status::rejected("too many large requests are being answered; the limit is " +
                               std::to_string(limits::kAdminBodiesBytesMax) + " B of bodies",
                           limits::kRetryAfterMemoryMs)));
    }
    body_bytes_ = size;
    shared_->body_bytes += size;
    link_->tcp().expires_after(seconds(limits::kAdminBodySeconds));
    if (!beast::iequals(parser_->get()[http::field::expect], "100-continue")) return receive();
    // Without this, such a client waits for a second before it sends the body.
    static constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(*link_, asio::buffer(kGoOn),
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (!error) self->receive();
                      });
  }

  void receive() {
    http::async_read(*link_, buffer_, *parser_,
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       self->on_body(error);
                     });
  }

  void on_body(const error_code& error) {
    if (error && is_gone(error)) return;
    if (error) return refuse(unreadable(error));
    request_.body = std::move(parser_->get().body());
    link_->tcp().expires_never();
    // The timer keeps this object alive until the answer.
    deadline_.expires_after(seconds(limits::kAdminAnswerSeconds));
    deadline_.async_wait([self = shared_from_this(), turn = ++turn_](const error_code& ended) {
      if (ended) return;
      self->answer(
          turn,
          error_response(Status::timed_out("the service has not answered within " +
                                           std::to_string(limits::kAdminAnswerSeconds) +
                                           " s; a change that was asked for may still be made")));
    });
    shared_->handlers.handle(std::move(request_), reply());
  }

  HttpServer::Reply reply() {
    // A weak reference: what waits in the io_context must not keep it alive.
    return [weak_io = io_, weak = weak_from_this(), turn = turn_](HttpResponse response) {
      const auto io = weak_io.lock();
      if (io == nullptr) return;
      asio::post(*io, [weak, turn, response = std::move(response)]() mutable {
        if (const auto self = weak.lock()) self->answer(turn, std::move(response));
      });
    };
  }

  void answer(std::uint64_t turn, HttpResponse response) {
    if (turn != turn_) return;  // answered already
    ++turn_;
    deadline_.cancel();
    if (response.parts) {
      return serve_stream({io_, std::move(link_), from_}, shared_, std::move(response));
    }
    send(std::move(response), parser_->get().keep_alive());
  }

  // The connection ends after a refusal, because the request's body was not read.
  void refuse(HttpResponse response) { send(std::move(response), /*keep_alive=*/false); }

  void send(HttpResponse from, bool keep_alive) {
    response_ = {http::status::ok, 11};
    response_.result(from.status);
    response_.set(http::field::content_type, from.content_type);
    response_.set(http::field::cache_control, "no-store");
    response_.set("X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : from.headers) response_.set(name, value);
    response_.body() = std::move(from.body);
    response_.keep_alive(keep_alive);
    response_.prepare_payload();
    link_->tcp().expires_after(is_known_ ? seconds(limits::kAdminSendSeconds) : kStrangerSendTime);
    http::async_write(
        *link_, response_,
        [self = shared_from_this(), keep_alive](const error_code& error, std::size_t) {
          if (error) return;
          if (keep_alive) return self->read();
          self->end();
        });
  }

  void end() {
    link_->tcp().expires_after(kDrainTime);
    link_->async_finish([self = shared_from_this()](const error_code&) {
      error_code ignored;
      self->link_->tcp().socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
      self->link_->tcp().expires_after(kDrainTime);
      self->drain();
    });
  }

  // With TLS the bytes stay encrypted.
  void drain() {
    link_->tcp().async_read_some(
        asio::buffer(drained_into_),
        [self = shared_from_this()](const error_code& error, std::size_t size) {
          if (error || (self->drained_ += size) > kDrainBytesMax) return;
          self->drain();
        });
  }

  const std::weak_ptr<asio::io_context> io_;
  const std::string from_;
  std::unique_ptr<HttpLink> link_;  // null once a stream has it
  asio::steady_timer deadline_;
  const std::shared_ptr<HttpShared> shared_;
  std::optional<std::list<HttpSession*>::iterator> evictable_;  // its place in shared_->evictable
  bool is_known_ = false;  // a request has been made that only an operator may make
  beast::flat_buffer buffer_{limits::kAdminHeaderBytesMax + (64u << 10)};
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpRequest request_;
  http::response<http::string_body> response_;
  std::size_t body_bytes_ = 0;  // counted in shared_
  std::uint64_t turn_ = 0;      // of the request that is being answered
  std::array<char, 4096> drained_into_{};
  std::size_t drained_ = 0;
};

namespace {

// Closes the longest evictable connection of the address that has most of them. Returns whether
// there is one.
bool make_room(HttpShared& shared) {
  std::map<std::string_view, std::size_t> counts;
  for (const HttpSession* const each : shared.evictable) ++counts[each->from()];
  const auto most = std::ranges::max_element(counts, {}, [](const auto& of) { return of.second; });
  if (most == counts.end()) return false;
  const auto has_most = [&](const HttpSession* each) {
    return counts[each->from()] == most->second;  // of several such addresses, the longest of all
  };
  (*std::ranges::find_if(shared.evictable, has_most))->close();
  return true;
}

}  // namespace

void serve_session(HttpSocket socket, std::shared_ptr<HttpShared> shared) {
  if (shared->connections >= limits::kAdminConnectionsMax && !make_room(*shared)) return;
  std::make_shared<HttpSession>(std::move(socket), std::move(shared))->start();
}

}  // namespace precis::admin
