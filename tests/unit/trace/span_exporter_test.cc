#include "cachesvc/trace/span_exporter.h"

#include <catch2/catch.hpp>

namespace precis::trace {

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
