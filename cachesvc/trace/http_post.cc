#include "cachesvc/trace/http_post.h"

#include "cachesvc/base/asio.h"

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <string_view>
#include <utility>

#include "cachesvc/net/address.h"
#include "precis/limits.h"

namespace precis::trace {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::string_view kScheme = "http://";

// One post. Its handlers own it: the lookup of a name may end long after the post.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  // `lookups` counts the lookups of names in progress.
  Attempt(asio::io_context& io, const Endpoint& to, std::string json, std::size_t& lookups)
      : io_(io), to_(to), lookups_(lookups) {
    request_.method(http::verb::post);
    request_.target(to.target);
    request_.set(http::field::host, to.authority);
    request_.set(http::field::content_type, "application/json");
    request_.keep_alive(false);
    request_.body() = std::move(json);
    request_.prepare_payload();
    answer_.body_limit(limits::kSpanAnswerBytesMax);
  }

  void start() {
    ++lookups_;
    resolver_.async_resolve(to_.host, to_.port,
                            [self = shared_from_this()](const error_code& error, auto found) {
                              --self->lookups_;
                              if (self->goes_on(error, "look up the host")) self->connect(found);
                            });
  }
  // The attempt ends after this time, counted from now.
  void limit(std::chrono::seconds time) {
    deadline_.expires_after(time);
    deadline_.async_wait([self = shared_from_this()](const error_code& canceled) {
      if (!canceled) self->end(Status::timed_out("the endpoint takes too long"));
    });
  }
  void end(Status outcome) {
    if (over_) return;
    over_ = true;
    outcome_ = std::move(outcome);
    error_code ignored;
    socket_.close(ignored);
    deadline_.cancel();
    resolver_.cancel();
    io_.stop();
  }
  const Status& outcome() const { return outcome_; }

 private:
  bool goes_on(const error_code& error, std::string_view what) {
    if (error) end(to_status(error, what));
    return !over_;
  }
  void connect(const tcp::resolver::results_type& found) {
    asio::async_connect(socket_, found,
                        [self = shared_from_this()](const error_code& error, const auto&) {
                          if (self->goes_on(error, "connect")) self->send();
                        });
  }
  void send() {
    http::async_write(socket_, request_,
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (self->goes_on(error, "send")) self->read();
                      });
  }
  // The header is read first: if a part of the body comes with it, Beast 1.74 loses the error that
  // the body is too long.
  void read() {
    http::async_read_header(socket_, buffer_, answer_,
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              if (self->goes_on(error, "read the answer")) self->read_body();
                            });
  }
  void read_body() {
    http::async_read(socket_, buffer_, answer_,
                     [self = shared_from_this()](const error_code& error, std::size_t) {
                       if (self->goes_on(error, "read the answer")) self->end(self->verdict());
                     });
  }
  Status verdict() const {
    const unsigned status = answer_.get().result_int();
    if (status >= 200 && status < 300) return {};
    return Status::unavailable("the endpoint answers with HTTP status " + std::to_string(status));
  }

  asio::io_context& io_;
  const Endpoint& to_;
  std::size_t& lookups_;
  tcp::resolver resolver_{io_};
  tcp::socket socket_{io_};
  asio::steady_timer deadline_{io_};
  http::request<http::string_body> request_;
  boost::beast::flat_buffer buffer_{limits::kSpanAnswerBytesMax};
  http::response_parser<http::string_body> answer_;
  bool over_ = false;
  Status outcome_;
};

}  // namespace

Result<Endpoint> parse_endpoint(const std::string& url) {
  const auto wrong = [&] {
    return Status::invalid("'" + url +
                           "' must be http://HOST:PORT/PATH, such as "
                           "http://127.0.0.1:4318/v1/traces");
  };
  if (url.starts_with("https://")) {
    return Status::invalid("'" + url +
                           "' has https, which Precis does not speak: name a collector on this "
                           "host with http, which sends the spans on with TLS");
  }
  const bool is_plain = std::ranges::all_of(url, [](char c) { return c > ' ' && c < 0x7f; });
  const auto path = url.find('/', kScheme.size());
  if (!url.starts_with(kScheme) || !is_plain || path == url.npos) return wrong();
  const std::string authority = url.substr(kScheme.size(), path - kScheme.size());
  if (url.find_first_of("@#") != url.npos) return wrong();
  const auto parts = split_address(authority);
  if (!parts.ok() || parts->number == 0) return wrong();
  return Endpoint{parts->host, parts->port, authority, url.substr(path)};
}

struct HttpPost::Impl {
  explicit Impl(Endpoint where) : endpoint(std::move(where)) {}
  // The system's lookup of a name can't be stopped, and the end of its loop would wait for it. The
  // loop is left to it then, and ends with the process.
  ~Impl() {
    io->restart();
    io->poll();
    if (lookups > 0) static_cast<void>(io.release());
  }

  const Endpoint endpoint;
  std::size_t lookups = 0;  // of names, in progress
  std::unique_ptr<asio::io_context> io = std::make_unique<asio::io_context>(1);
  std::shared_ptr<Attempt> attempt;  // in progress; used by the thread of post()
  std::atomic<bool> hurried = false;
};

HttpPost::HttpPost(Endpoint endpoint) : impl_(std::make_unique<Impl>(std::move(endpoint))) {}
HttpPost::~HttpPost() = default;

Status HttpPost::post(std::string json) {
  Impl& impl = *impl_;
  const auto attempt =
      std::make_shared<Attempt>(*impl.io, impl.endpoint, std::move(json), impl.lookups);
  impl.attempt = attempt;
  impl.io->restart();
  attempt->limit(
      std::chrono::seconds(impl.hurried ? limits::kSpanLastPostSeconds : limits::kSpanPostSeconds));
  try {
    attempt->start();  // may need a thread
    impl.io->run();
  } catch (const std::exception& error) {
    attempt->end(Status::unavailable(error.what()));
  }
  impl.attempt = nullptr;
  return attempt->outcome().with_context(impl.endpoint.authority);
}

void HttpPost::hurry() {
  impl_->hurried = true;
  asio::post(*impl_->io, [impl = impl_.get()] {
    if (impl->attempt) impl->attempt->limit(std::chrono::seconds(limits::kSpanLastPostSeconds));
  });
}

}  // namespace precis::trace
