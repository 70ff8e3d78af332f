#include "cachesvc/server/request_rates.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace precis {
namespace {

using std::chrono::milliseconds;

TenantConfig limited(const std::string& name, std::uint32_t per_second) {
  TenantConfig tenant{name, "", ""};
  tenant.max_requests_per_s = per_second;
  return tenant;
}

}  // namespace

TEST_CASE("a tenant sends as many requests as its limit, and the next when it is told",
          "[unit][server]") {
  RequestRates rates;
  rates.set_tenants({limited("red", 4), limited("blue", 0)});
  const Clock::Time begin{};
  for (int request = 0; request < 4; ++request) REQUIRE(rates.take("red", begin).ok());
  const Status over = rates.take("red", begin);
  CHECK(over.code() == StatusCode::kRejected);
  CHECK(over.retry_after_ms() == 250);
  CHECK_THAT(over.message(), Catch::Contains("tenant 'red' may send 4 requests per second"));
  CHECK_FALSE(rates.take("red", begin + milliseconds(249)).ok());
  CHECK(rates.take("red", begin + milliseconds(251)).ok());
  // Other tenants are not limited.
  for (int request = 0; request < 100; ++request) {
    REQUIRE(rates.take("blue", begin).ok());
    REQUIRE(rates.take("green", begin).ok());
  }
}

TEST_CASE("a pause saves no more than the requests of one second", "[unit][server]") {
  RequestRates rates;
  rates.set_tenants({limited("red", 2)});
  const Clock::Time late = Clock::Time{} + std::chrono::hours(1);
  CHECK(rates.take("red", late).ok());
  CHECK(rates.take("red", late).ok());
  CHECK_FALSE(rates.take("red", late).ok());
}

TEST_CASE("a change of other tenants refills nothing, and another limit holds at once",
          "[unit][server]") {
  RequestRates rates;
  const Clock::Time now{};
  rates.set_tenants({limited("red", 1)});
  REQUIRE(rates.take("red", now).ok());
  rates.set_tenants({limited("red", 1), limited("blue", 5)});
  CHECK_FALSE(rates.take("red", now).ok());
  rates.set_tenants({limited("red", 2)});
  CHECK(rates.take("red", now).ok());
  rates.set_tenants({});
  CHECK(rates.take("red", now).ok());
}

}  // namespace precis
