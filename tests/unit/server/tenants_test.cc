#include "cachesvc/server/tenants.h"

#include <catch2/catch.hpp>

namespace precis {
namespace {

msg::Hello hello(const std::string& tenant, const std::string& token = "") {
  msg::Hello greeting;
  greeting.tenant = tenant;
  greeting.token = token;
  return greeting;
}

}  // namespace

TEST_CASE("without configured tenants everybody is the default tenant", "[unit][server]") {
  const Tenants tenants({});
  const auto tenant = tenants.admit({});
  REQUIRE(tenant.ok());
  CHECK(tenant->name == "default");
  CHECK(tenants.admit(hello("other")).status().code() == StatusCode::kPermissionDenied);
}

TEST_CASE("a tenant is admitted with its own token only", "[unit][server]") {
  const Tenants tenants({{"red", "secret", "pepper"}, {"blue", "other", ""}});
  const auto red = tenants.admit(hello("red", "secret"));
  REQUIRE(red.ok());
  CHECK(red->salt == "pepper");
  for (const char* token : {"", "secre", "secrets", "other"}) {
    const auto refused = tenants.admit(hello("red", token));
    CHECK(refused.status().code() == StatusCode::kPermissionDenied);
  }
  CHECK(tenants.admit({}).status().code() == StatusCode::kPermissionDenied);
  CHECK_THAT(tenants.admit(hello("red", "guess")).status().message(),
             Catch::Contains("with this token"));
  // Of a tenant that is not there it is said in the same words.
  for (const char* name : {"red", "green"}) {
    CHECK_THAT(tenants.admit(hello(name)).status().message(),
               Catch::Contains("without a token") && Catch::Contains("PRECIS_TOKEN"));
  }
}

TEST_CASE("a tenant is the same where its token and salt are", "[unit][server]") {
  const Tenants before({{"red", "secret", "pepper"}});
  const auto same_in = [&](const std::vector<TenantConfig>& tenants) {
    return Tenants(tenants).has_same(before, "red");
  };
  CHECK(same_in({{"blue", "x", ""}, {"red", "secret", "pepper", 2, "a file"}}));
  CHECK_FALSE(same_in({{"red", "other", "pepper"}}));
  CHECK_FALSE(same_in({{"red", "secret", "salt"}}));
  CHECK_FALSE(same_in({{"blue", "x", ""}}));
  CHECK_FALSE(same_in({}));  // the default tenant alone
  CHECK(before.names() == std::vector<std::string>{"red"});
}

TEST_CASE("another protocol version is refused before the token is looked at", "[unit][server]") {
  const Tenants tenants({{"red", "secret", ""}});
  msg::Hello foreign = hello("red");
  foreign.protocol_version = 99;
  const auto refused = tenants.admit(foreign);
  CHECK(refused.status().code() == StatusCode::kVersionMismatch);
  CHECK_THAT(refused.status().message(), Catch::Contains("99") && Catch::Contains("speaks 1"));
}

}  // namespace precis
