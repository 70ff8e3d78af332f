#include "cachesvc/net/http_post.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "cachesvc/net/address.h"
#include "cachesvc/net/http_link.h"

namespace precis {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::string_view kPlain = "http://", kEncrypted = "https://";
constexpr std::size_t kReadBytes = 64u << 10;  // at a time

// One post. Its handlers own it: the lookup of a name may end long after the post.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  // `lookups` counts the lookups of names in progress.
  Attempt(asio::io_context& io, const HttpEndpoint& to, std::string json,
          const HttpPost::Limits& limits, HttpPost::Enough enough, const TlsContext* tls,
          std::size_t& lookups)
      : io_(io),
        to_(to),
        limits_(limits),
        enough_(std::move(enough)),
        lookups_(lookups),
        link_(tcp::socket(io), to.encrypted ? tls : nullptr) {
    request_.method(http::verb::post);
    request_.target(to.target.empty() ? "/" : to.target);
    request_.set(http::field::host, to.authority);
    request_.set(http::field::content_type, "application/json");
    request_.keep_alive(false);
    request_.body() = std::move(json);
    request_.prepare_payload();
    answer_.body_limit(limits.answer_bytes);
  }

  void start() {
    error_code no_address;
    const auto address = asio::ip::make_address(to_.host, no_address);
    if (!no_address) {  // needs no lookup, and so waits for no other one
      const auto port = static_cast<std::uint16_t>(std::stoul(to_.port));
      const tcp::endpoint at(address, port);
      return connect(tcp::resolver::results_type::create(at, to_.host, to_.port));
    }
    ++lookups_;
    resolver_.async_resolve(to_.host, to_.port,
                            [self = shared_from_this()](const error_code& error, auto found) {
                              --self->lookups_;
                              if (self->goes_on(error, "look up the host")) self->connect(found);
                            });
  }
  // The attempt ends after its time, or its last time, counted from now.
  void limit(bool hurried) {
    deadline_.expires_after(hurried ? limits_.last_time : limits_.time);
    deadline_.async_wait([self = shared_from_this()](const error_code& canceled) {
      if (!canceled) self->end(Status::timed_out("the endpoint takes too long"));
    });
  }
  void end(Status failure) { end(Result<HttpPost::Answer>(std::move(failure))); }
  void end(Result<HttpPost::Answer> outcome) {
    if (over_) return;
    over_ = true;
    outcome_ = std::move(outcome);
    error_code ignored;
    link_.tcp().socket().close(ignored);
    deadline_.cancel();
    resolver_.cancel();
    io_.stop();
  }
  // Once it has ended.
  Result<HttpPost::Answer>& outcome() { return *outcome_; }

 private:
  bool goes_on(const error_code& error, std::string_view what) {
    if (error) end(to_status(error, what));
    return !over_;
  }
  void connect(const tcp::resolver::results_type& found) {
    asio::async_connect(link_.tcp().socket(), found,
                        [self = shared_from_this()](const error_code& error, const auto&) {
                          if (self->goes_on(error, "connect")) self->begin();
                        });
  }
  void begin() {
    if (!link_.is_encrypted()) return send();
    link_.async_begin(to_.host, [self = shared_from_this()](const error_code& error) {
      if (self->goes_on(error, "begin TLS")) self->send();
    });
  }
  void send() {
    http::async_write(link_, request_,
                      [self = shared_from_this()](const error_code& error, std::size_t) {
                        if (self->goes_on(error, "send")) self->read();
                      });
  }
  // The header is read first: if a part of the body comes with it, Beast 1.74 loses the error that
  // the body is too long.
  void read() {
    http::async_read_header(link_, buffer_, answer_,
                            [self = shared_from_this()](const error_code& error, std::size_t) {
                              if (self->goes_on(error, "read the answer")) self->read_body();
                            });
  }
  void read_body() {
    if (answer_.is_done() || (enough_ && enough_(answer_.get().body()))) {
      return end(HttpPost::Answer{answer_.get().result_int(), std::move(answer_.get().body())});
    }
    http::async_read_some(link_, buffer_, answer_,
                          [self = shared_from_this()](const error_code& error, std::size_t) {
                            if (self->goes_on(error, "read the answer")) self->read_body();
                          });
  }

  asio::io_context& io_;
  const HttpEndpoint& to_;
  const HttpPost::Limits limits_;
  const HttpPost::Enough enough_;
  std::size_t& lookups_;
  tcp::resolver resolver_{io_};
  HttpLink link_;
  asio::steady_timer deadline_{io_};
  http::request<http::string_body> request_;
  boost::beast::flat_buffer buffer_{kReadBytes};
  http::response_parser<http::string_body> answer_;
  bool over_ = false;
  std::optional<Result<HttpPost::Answer>> outcome_;
};

}  // namespace

Result<HttpEndpoint> parse_http_endpoint(std::string_view url) {
  const auto wrong = [] { return Status::invalid(""); };
  const bool is_plain = std::ranges::all_of(url, [](char c) { return c > ' ' && c < 0x7f; });
  const bool encrypted = url.starts_with(kEncrypted);
  const std::string_view scheme = encrypted ? kEncrypted : kPlain;
  if (!url.starts_with(scheme) || !is_plain || url.find_first_of("@#") != url.npos) return wrong();
  const auto path = std::min(url.find('/', scheme.size()), url.size());
  const std::string authority(url.substr(scheme.size(), path - scheme.size()));
  const auto parts = split_address(authority);
  if (!parts.ok() || parts->number == 0) return wrong();
  return HttpEndpoint{encrypted, parts->host, parts->port, authority,
                      std::string(url.substr(path))};
}

struct HttpPost::Impl {
  explicit Impl(std::shared_ptr<const TlsContext> t) : tls(std::move(t)) {}
  // The system's lookup of a name can't be stopped, and the destructor of its loop would wait for
  // it. So a loop with a lookup in progress is never destroyed.
  ~Impl() {
    io->restart();
    io->poll();
    if (lookups > 0) static_cast<void>(io.release());
  }

  const std::shared_ptr<const TlsContext> tls;
  std::size_t lookups = 0;  // of names, in progress
  std::unique_ptr<asio::io_context> io = std::make_unique<asio::io_context>(1);
  std::shared_ptr<Attempt> attempt;  // in progress; used by the thread of post()
  std::atomic<bool> hurried = false;
};

HttpPost::HttpPost(std::shared_ptr<const TlsContext> tls)
    : impl_(std::make_unique<Impl>(std::move(tls))) {}
HttpPost::~HttpPost() = default;

Result<HttpPost::Answer> HttpPost::post(const HttpEndpoint& to, std::string json,
                                        const Limits& limits, Enough enough) {
  Impl& impl = *impl_;
  if (to.encrypted && impl.tls == nullptr) return Status::invalid("https needs TLS files");
  impl.io->restart();
  try {
    impl.attempt = std::make_shared<Attempt>(*impl.io, to, std::move(json), limits,
                                             std::move(enough), impl.tls.get(), impl.lookups);
    impl.attempt->limit(impl.hurried);
    impl.attempt->start();  // may need a thread
    impl.io->run();
  } catch (const std::exception& error) {
    if (!impl.attempt) return Status::unavailable(error.what()).with_context(to.authority);
    impl.attempt->end(Status::unavailable(error.what()));
  }
  const auto attempt = std::exchange(impl.attempt, nullptr);
  Result<Answer>& outcome = attempt->outcome();
  return outcome.ok() ? std::move(outcome) : outcome.status().with_context(to.authority);
}

void HttpPost::hurry() {
  impl_->hurried = true;
  asio::post(*impl_->io, [impl = impl_.get()] {
    if (impl->attempt) impl->attempt->limit(/*hurried=*/true);
  });
}

}  // namespace precis
