#include "cachesvc/net/http_post.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "cachesvc/base/descriptor.h"
#include "tests/loopback_listener.h"

namespace precis {
namespace {

// Reads a request of less than 64 KiB from one connection, then sends `answer`. If it is `endless`,
// it sends `answer` again and again until the client closes.
class Collector {
 public:
  explicit Collector(std::string answer, bool endless = false)
      : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    port_ = testing::listen_on_loopback(listener_.get(), 1);
    thread_ = std::thread([this, answer = std::move(answer), endless] { serve(answer, endless); });
  }
  ~Collector() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }

  HttpEndpoint endpoint() const {
    return parse_http_endpoint("http://127.0.0.1:" + std::to_string(port_) + "/v1/traces").value();
  }
  void await_request() { arrived_.get_future().wait(); }
  std::string request() {
    thread_.join();
    return request_;
  }

 private:
  void serve(const std::string& answer, bool endless) {
    const Descriptor link(::accept(listener_.get(), nullptr, nullptr));
    char bytes[4096];
    while (!request_.ends_with("}")) {
      const auto got = ::recv(link.get(), bytes, sizeof bytes, 0);
      if (got <= 0) return;
      request_.append(bytes, static_cast<std::size_t>(got));
    }
    arrived_.set_value();
    do {
      if (::send(link.get(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
    } while (endless);
    if (answer.empty()) ::recv(link.get(), bytes, sizeof bytes, 0);  // until the client closes
  }

  const Descriptor listener_;
  std::uint16_t port_ = 0;
  std::string request_;
  std::promise<void> arrived_;
  std::thread thread_;
};

constexpr HttpPost::Limits kLimits = {
    .time = std::chrono::seconds(10), .last_time = std::chrono::seconds(1), .answer_bytes = 65536};

}  // namespace

TEST_CASE("an endpoint is a URL with host and port", "[unit][transport]") {
  const auto endpoint = parse_http_endpoint("http://collector:4318/v1/traces?x=1");
  REQUIRE(endpoint.ok());
  CHECK(endpoint->host == "collector");
  CHECK(endpoint->port == "4318");
  CHECK(endpoint->authority == "collector:4318");
  CHECK(endpoint->target == "/v1/traces?x=1");
  CHECK(parse_http_endpoint("http://collector:1").value().target.empty());
  CHECK(parse_http_endpoint("http://[::1]:4318/").value().host == "::1");
}

TEST_CASE("a body is posted as JSON, and the answer is returned", "[unit][transport]") {
  Collector collector("HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}");
  HttpPost post;
  const auto answer = post.post(collector.endpoint(), "{\"a\": 1}", kLimits);
  REQUIRE(answer.ok());
  CHECK(answer->status == 202);
  CHECK(answer->body == "{}");
  const std::string request = collector.request();
  CHECK_THAT(request, Catch::StartsWith("POST /v1/traces HTTP/1.1\r\n"));
  CHECK_THAT(request, Catch::Contains("Host: " + collector.endpoint().authority + "\r\n"));
  CHECK_THAT(request, Catch::Contains("Content-Type: application/json\r\n"));
  CHECK_THAT(request, Catch::Contains("Content-Length: 8\r\n"));
  CHECK_THAT(request, Catch::EndsWith("\r\n\r\n{\"a\": 1}"));
}

TEST_CASE("an answer is returned whatever its status", "[unit][transport]") {
  Collector collector("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nlate");
  const auto answer = HttpPost().post(collector.endpoint(), "{}", kLimits);
  REQUIRE(answer.ok());
  CHECK(answer->status == 503);
  CHECK(answer->body == "late");
}

TEST_CASE("an answer that goes on ends when it is enough", "[unit][transport]") {
  Collector collector("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  const auto answer = HttpPost().post(collector.endpoint(), "{}", kLimits,
                                      [](std::string_view body) { return body == "abc"; });
  REQUIRE(answer.ok());
  CHECK(answer->body == "abc");
}

TEST_CASE("what is no answer is an error", "[unit][transport]") {
  const auto [answer, why] = GENERATE(table<std::string, std::string>({
      {"SSH-2.0-OpenSSH_9.2\r\n", "read the answer"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "read the answer"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}", "read the answer"},
      {std::string(64, '\0'), "read the answer"},
  }));
  Collector collector(answer);
  const Status status = HttpPost().post(collector.endpoint(), "{}", kLimits).status();
  CHECK(status.code() == StatusCode::kUnavailable);
  CHECK_THAT(status.message(), Catch::StartsWith(collector.endpoint().authority + ": "));
  CHECK_THAT(status.message(), Catch::Contains(why));
}

TEST_CASE("an answer without end is read up to its limit", "[unit][transport]") {
  const auto answer = GENERATE(std::string("HTTP/1.1 200 OK\r\nX-Long: " + std::string(4096, 'a')),
                               std::string("HTTP/1.1 200 OK\r\nContent-Length: 66000\r\n\r\n"),
                               std::string("HTTP/1.1 200 OK\r\n\r\n" + std::string(1 << 20, 'a')));
  Collector collector(answer, /*endless=*/true);
  const auto answer_read = HttpPost().post(collector.endpoint(), "{}", kLimits);
  CHECK(answer_read.status().code() == StatusCode::kUnavailable);
}

TEST_CASE("an endpoint can have a name", "[unit][transport]") {
  Collector collector("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  HttpEndpoint named = collector.endpoint();
  named.host = "localhost";
  const auto answer = HttpPost().post(named, "{}", kLimits);
  REQUIRE(answer.ok());
  CHECK(answer->status == 200);
}

TEST_CASE("where nobody listens a post fails, and the next one is tried", "[unit][transport]") {
  HttpEndpoint nowhere;
  {
    const Collector collector("");
    nowhere = collector.endpoint();
  }
  HttpPost post;
  CHECK(post.post(nowhere, "{}", kLimits).status().code() == StatusCode::kUnavailable);
  CHECK(post.post(nowhere, "{}", kLimits).status().code() == StatusCode::kUnavailable);
}

TEST_CASE("a post to an endpoint that does not answer ends in time, once it is hurried",
          "[unit][transport]") {
  const bool in_progress = GENERATE(false, true);
  Collector silent("");
  HttpPost post;
  if (!in_progress) post.hurry();
  HttpPost::Limits patient = kLimits;
  patient.time = std::chrono::hours(1);
  auto posted = std::async(std::launch::async,
                           [&] { return post.post(silent.endpoint(), "{}", patient).status(); });
  if (in_progress) {
    silent.await_request();
    post.hurry();
  }
  CHECK(posted.get().code() == StatusCode::kTimedOut);
}

}  // namespace precis
