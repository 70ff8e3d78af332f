// Requests to S3 go to its server alone, whatever an answer or the environment says.
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "cachesvc/base/descriptor.h"
#include "cachesvc/shared/s3_tier.h"
#include "tests/integration/s3_keys_file.h"
#include "tests/loopback_listener.h"
#include "tests/unit/store/test_dir.h"

namespace {

using namespace precis;

// Gives one answer to every request that has no body, and closes the connection.
class Server {
 public:
  explicit Server(std::string answer) : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    port_ = testing::listen_on_loopback(listener_.get(), 8);
    thread_ = std::thread([this, text = std::move(answer)] {
      while (serve(text)) {
      }
    });
  }
  ~Server() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int requests() const { return requests_; }

 private:
  // False once the listener is shut down.
  bool serve(const std::string& answer) {
    const Descriptor link(::accept(listener_.get(), nullptr, nullptr));
    if (link.get() < 0) return false;
    std::string request;
    std::array<char, 4096> bytes;
    while (!request.ends_with("\r\n\r\n")) {
      const auto got = ::recv(link.get(), bytes.data(), bytes.size(), 0);
      if (got <= 0) return true;
      request.append(bytes.data(), static_cast<std::size_t>(got));
    }
    ++requests_;
    (void)::send(link.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    return true;
  }

  const Descriptor listener_;
  int port_ = 0;
  std::atomic<int> requests_ = 0;
  std::thread thread_;
};

std::string answer_of(const std::string& status, const std::string& headers,
                      const std::string& body) {
  return "HTTP/1.1 " + status + "\r\n" + headers +
         "Connection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string a_list() {
  return answer_of("200 OK", "",
                   "<ListBucketResult><IsTruncated>false</IsTruncated>"
                   "<Contents><Key>p/name</Key></Contents></ListBucketResult>");
}

// Sets a variable of the environment, until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

Result<ObjectStore::Page> list_at(const Server& server) {
  const testing::TestDir dir;
  S3Settings settings;
  settings.url = server.url() + "/bucket";
  settings.keys_file = testing::s3_keys_file(dir.path(), "name", "word");
  return make_s3_store(settings).value()->list("p/", "");
}

}  // namespace

TEST_CASE("redirects of an S3 are not followed", "[unit][shared]") {
  const Server other(a_list());
  for (const std::string status :
       {"301 Moved Permanently", "302 Found", "307 Temporary Redirect"}) {
    CAPTURE(status);
    const Server server(answer_of(status, "Location: " + other.url() + "/bucket\r\n", ""));
    CHECK_FALSE(list_at(server).ok());
    CHECK(server.requests() == 1);
  }
  CHECK(other.requests() == 0);
  CHECK(list_at(other).ok());  // it would have answered
}

TEST_CASE("requests to S3 pass by the proxies that the environment names", "[unit][shared]") {
  const Server proxy(a_list()), server(a_list());
  const Variable http("http_proxy", proxy.url()), all("all_proxy", proxy.url()),
      all_in_capitals("ALL_PROXY", proxy.url()), none("no_proxy", ""),
      none_in_capitals("NO_PROXY", "");
  const auto page = list_at(server);
  INFO(page.status().to_string());
  REQUIRE(page.ok());
  CHECK(page->names == std::vector<std::string>{"p/name"});
  CHECK(server.requests() == 1);
  CHECK(proxy.requests() == 0);
}
