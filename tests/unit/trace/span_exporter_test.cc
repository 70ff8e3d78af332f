#include "cachesvc/trace/span_exporter.h"

#include <catch2/catch.hpp>

#include "cachesvc/trace/http_post.h"

namespace precis::trace {

TEST_CASE("an endpoint is a URL with host, port and path", "[unit][trace]") {
  const auto endpoint = parse_endpoint("http://collector:4318/v1/traces?x=1");
  REQUIRE(endpoint.ok());
  CHECK(endpoint->host == "collector");
  CHECK(endpoint->port == "4318");
  CHECK(endpoint->authority == "collector:4318");
  CHECK(endpoint->target == "/v1/traces?x=1");
  CHECK(parse_endpoint("http://[::1]:4318/").value().host == "::1");
}

TEST_CASE("a wrong endpoint is refused with its place and the right form", "[unit][trace]") {
  Config config;
  CHECK(check_config(config).ok());
  config.said_at["otlp_endpoint"] = "precisd.toml:3";
  for (const std::string& url :
       {std::string("collector:4318"), std::string("http://collector/v1/traces"),
        std::string("http://collector:4318"), std::string("http://collector:0/v1/traces"),
        std::string("http://collector:99999/v1/traces"), std::string("http://:4318/v1/traces"),
        std::string("http://user@collector:4318/v1/traces"),
        std::string("http://collector:4318/v1/traces#x"), std::string("http://a b:4318/"),
        std::string("http://collector:4318/v1\r\nHost: other"), std::string("ftp://a:1/b")}) {
    CAPTURE(url);
    config.otlp_endpoint = url;
    const Status status = check_config(config);
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(status.message(), Catch::StartsWith("precisd.toml:3: otlp_endpoint: '"));
    CHECK_THAT(status.message(), Catch::Contains("must be http://HOST:PORT/PATH"));
  }
  config.otlp_endpoint = "https://collector:4318/v1/traces";
  CHECK_THAT(check_config(config).message(), Catch::Contains("name a collector on this host"));
}

}  // namespace precis::trace
