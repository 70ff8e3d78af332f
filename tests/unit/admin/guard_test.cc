#include "cachesvc/admin/guard.h"

#include <catch2/catch.hpp>
#include <vector>

#include "precis/limits.h"

namespace precis::admin {
namespace {

class FixedClock final : public Clock {
 public:
  std::uint64_t unix_ms() const override { return 0; }
  std::uint64_t monotonic_ns() const override { return now_ns; }
  std::uint64_t now_ns = 1;
};

struct Fixture {
  FixedClock clock;
  std::vector<std::string> refused;  // addresses of wrong tokens
  Guard guard{"secret", true, clock,
              [this](const std::string& from, const Status&) { refused.push_back(from); }};
  Guard open{"", true, clock, [](const std::string&, const Status&) {}};
  Guard remote{"secret", false, clock, [](const std::string&, const Status&) {}};

  static HttpRequest request(const std::string& path, const std::string& authorization = "") {
    HttpRequest request;
    request.target = parse_target(path).value();
    request.from = "10.0.0.7";
    request.host = "127.0.0.1:7471";
    request.authorization = authorization;
    return request;
  }
  static unsigned status(const std::optional<HttpResponse>& refusal) {
    return refusal ? refusal->status : 200;
  }
};

TEST_CASE_METHOD(Fixture, "without the token only probes and the page's files are answered",
                 "[unit][admin]") {
  CHECK(status(guard.check(request("/healthz"))) == 200);
  CHECK(status(guard.check(request("/readyz"))) == 200);
  CHECK(status(guard.check(request("/"))) == 200);
  CHECK(status(guard.check(request("/page/main.js"))) == 200);
  for (const char* path : {"/metrics", "/api/v1/status", "/page", "/page/none.js", "/healthz/x"}) {
    CAPTURE(path);
    CHECK(status(guard.check(request(path))) == 401);
    CHECK(status(guard.check(request(path, "Bearer secret"))) == 200);
    CHECK(status(open.check(request(path))) == 200);
  }
  for (const char* shown : {"Bearer secre", "Bearer secret2", "Bearer ", "bearer secret"}) {
    CAPTURE(shown);
    CHECK(status(guard.check(request("/metrics", shown))) == 401);
    guard.check(request("/metrics", "Bearer secret"));  // a right token ends the count
  }
  CHECK(refused.size() == 3);  // all but "bearer secret", which shows no token
}

TEST_CASE_METHOD(Fixture, "a request that needs no token tells nothing about who asks",
                 "[unit][admin]") {
  CHECK(guard.is_for_strangers(request("/healthz")));
  CHECK(guard.is_for_strangers(request("/page/main.js", "Bearer secret")));
  CHECK_FALSE(guard.is_for_strangers(request("/metrics", "Bearer secret")));
  CHECK_FALSE(open.is_for_strangers(request("/healthz")));  // all who reach the port are operators
}

TEST_CASE_METHOD(Fixture, "after a few wrong tokens an address must wait, also with the right one",
                 "[unit][admin]") {
  for (std::uint32_t t = 0; t < limits::kWrongProofsFree; ++t) {
    CHECK(status(guard.check(request("/metrics", "Bearer wrong"))) == 401);
  }
  const auto refusal = guard.check(request("/metrics", "Bearer secret"));
  REQUIRE(refusal);
  CHECK(refusal->status == 429);
  REQUIRE(refusal->headers.size() == 1);
  CHECK(refusal->headers[0].first == "Retry-After");
  HttpRequest other = request("/metrics", "Bearer secret");
  other.from = "10.0.0.8";
  CHECK(status(guard.check(other)) == 200);
  clock.now_ns += std::uint64_t{limits::kWrongProofWaitMsMax} * 1'000'000;
  CHECK(status(guard.check(request("/metrics", "Bearer secret"))) == 200);
}

TEST_CASE_METHOD(Fixture, "a loopback port answers only to the names of a loopback",
                 "[unit][admin]") {
  for (const char* host :
       {"localhost", "localhost:7471", "127.0.0.1", "127.0.0.1:7471", "[::1]", "[::1]:7471"}) {
    CAPTURE(host);
    HttpRequest own = request("/metrics");
    own.host = host;
    CHECK(status(open.check(own)) == 200);
  }
  for (const char* host : {"", "evil.example", "evil.example:7471", "10.0.0.7", "localhost.evil"}) {
    CAPTURE(host);
    HttpRequest foreign = request("/metrics", "Bearer secret");
    foreign.host = host;
    CHECK(status(open.check(foreign)) == 403);
    CHECK(status(guard.check(foreign)) == 403);
    CHECK(status(remote.check(foreign)) == 200);
  }
}

TEST_CASE_METHOD(Fixture, "a page of another site gets no answer", "[unit][admin]") {
  HttpRequest from_page = request("/metrics", "Bearer secret");
  from_page.origin = "http://127.0.0.1:7471";
  CHECK(status(guard.check(from_page)) == 200);
  for (const char* origin : {"http://evil.example", "http://127.0.0.1:8000", "null", "https://"}) {
    CAPTURE(origin);
    from_page.origin = origin;
    CHECK(status(guard.check(from_page)) == 403);
    CHECK(status(remote.check(from_page)) == 403);
  }
}

}  // namespace
}  // namespace precis::admin
