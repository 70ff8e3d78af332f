// Requests to S3, over a server that answers as a test tells it to.
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cachesvc/base/descriptor.h"
#include "cachesvc/shared/s3_tier.h"
#include "tests/loopback_listener.h"
#include "tests/unit/store/test_dir.h"

namespace {

using namespace precis;
using namespace precis::testing;

// Gives these answers to requests, one after another, and the last one to all others.
class Bucket {
 public:
  explicit Bucket(std::vector<std::string> answers)
      : answers_(std::move(answers)), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    port_ = testing::listen_on_loopback(listener_.get(), 8);
    std::ofstream(keys()) << "aws_access_key_id = A\naws_secret_access_key = b\n";
    thread_ = std::thread([this] { serve(); });
  }
  ~Bucket() { end(); }
  Bucket(const Bucket&) = delete;
  Bucket& operator=(const Bucket&) = delete;

  S3Settings settings() const {
    S3Settings settings;
    settings.url = "http://127.0.0.1:" + std::to_string(port_) + "/bucket";
    settings.keys_file = keys();
    return settings;
  }
  // The heads of all requests. No more are served.
  const std::vector<std::string>& requests() {
    end();
    return requests_;
  }

 private:
  std::string keys() const { return dir_.path() + "/keys"; }
  void end() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }
  void serve() {
    for (;;) {
      const Descriptor link(::accept(listener_.get(), nullptr, nullptr));
      if (link.get() < 0) return;
      std::string request;
      char bytes[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const auto got = ::recv(link.get(), bytes, sizeof bytes, 0);
        if (got <= 0) break;
        request.append(bytes, static_cast<std::size_t>(got));
      }
      if (request.empty()) continue;
      const std::string& body = answers_[std::min(requests_.size(), answers_.size() - 1)];
      requests_.push_back(request);
      ::send(link.get(), body.data(), body.size(), MSG_NOSIGNAL);
      ::shutdown(link.get(), SHUT_WR);
      while (::recv(link.get(), bytes, sizeof bytes, 0) > 0) continue;  // until the client closes
    }
  }

  const TestDir dir_;
  const std::vector<std::string> answers_;
  const Descriptor listener_;
  std::uint16_t port_ = 0;
  std::vector<std::string> requests_;  // of the thread, until it has ended
  std::thread thread_;
};

std::string answer(const std::string& status, const std::string& code = "") {
  const std::string body =
      code.empty() ? "" : "<Error><Code>" + code + "</Code><Message>why</Message></Error>";
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

const std::string kConflict = answer("409 Conflict", "ConditionalRequestConflict");

Result<bool> create_in(const S3Settings& settings) {
  return make_s3_store(settings).value()->create("object", std::as_bytes(std::span("value")));
}

}  // namespace

TEST_CASE("a request to create an object is repeated while S3 lets none of several win",
          "[unit][shared]") {
  const auto [last, created] = GENERATE(
      table<std::string, bool>({{answer("200 OK"), true},
                                {answer("412 Precondition Failed", "PreconditionFailed"), false}}));
  Bucket bucket({kConflict, kConflict, last});
  const auto result = create_in(bucket.settings());
  INFO(result.status().to_string());
  REQUIRE(result.ok());
  CHECK(*result == created);
  REQUIRE(bucket.requests().size() == 3);
  for (const std::string& request : bucket.requests()) {
    CHECK_THAT(request, Catch::StartsWith("PUT /bucket/object HTTP/1.1\r\n"));
    CHECK_THAT(request, Catch::Contains("\r\nIf-None-Match: *\r\n"));
  }
}

TEST_CASE("a request to create an object that S3 refuses is not repeated without end",
          "[unit][shared]") {
  const auto [refusal, times] = GENERATE(table<std::string, std::size_t>(
      {{kConflict, std::size_t{4}}, {answer("409 Conflict", "OperationAborted"), std::size_t{1}}}));
  Bucket bucket({refusal});
  CHECK(create_in(bucket.settings()).status().code() == StatusCode::kUnavailable);
  CHECK(bucket.requests().size() == times);
}

TEST_CASE("no request is sent with an option that libcurl does not take", "[unit][shared]") {
  Bucket bucket({answer("200 OK")});
  S3Settings settings = bucket.settings();
  CHECK(create_in(settings).ok());
  settings.ca = std::string(9'000'000, 'a');  // longer than any option may be
  CHECK_FALSE(create_in(settings).ok());
  CHECK(bucket.requests().size() == 1);
}
