#include "cachesvc/server/openness.h"

#include <catch2/catch.hpp>

namespace precis {
namespace {

using Catch::Contains;

Config with_tenants(const std::vector<TenantConfig>& tenants) {
  Config config;
  config.tenants = tenants;
  return config;
}

}  // namespace

TEST_CASE("TLS is off, on or mutual", "[unit][server]") {
  Config config;
  CHECK(tls_text(config) == "off");
  config.tls_cert = config.tls_key = "file";
  CHECK(tls_text(config) == "on");
  config.tls_client_ca = "file";
  CHECK(tls_text(config) == "mutual");
}

TEST_CASE("what is exposed to the network is said to each tenant of its own", "[unit][server]") {
  const Config none, both = with_tenants({{"red", "secret", ""}, {"blue", "", ""}});
  for (const Config& config : {none, both}) CHECK(exposed_text(config, false, false, "red") == "");
  CHECK(exposed_text(both, true, true, "red") == "");
  CHECK_THAT(exposed_text(both, true, false, "red"),
             Contains("not encrypted") && !Contains("token"));
  CHECK_THAT(exposed_text(both, true, true, "blue"),
             !Contains("not encrypted") && Contains("needs no token"));
  CHECK_THAT(
      exposed_text(none, true, false, "default"),
      Contains("not encrypted") && Contains("; any client that reaches the address may read"));
  CHECK_THAT(exposed_text(both, true, false, "blue"), !Contains("red"));
}

}  // namespace precis
