// The service's guards as its operator sees them: delays after wrong tokens, and the log.
#include <catch2/catch.hpp>

#include "precis/limits.h"
#include "tests/integration/operated_service.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

constexpr char kRed[] = "[[tenant]]\nname = \"red\"\ntoken = \"first\"\n";

TEST_CASE("a login that waits for wrong tokens is told so, waited for, and let in by a new token",
          "[integration]") {
  const TempDir dir;
  OperatedService service(dir, kRed);
  ConnectOptions guess;
  guess.tenant = "red";
  guess.token = "guess";
  guess.retry = false;
  const auto use_up = [&] {
    for (std::uint32_t i = 0; i < limits::kWrongProofsFree; ++i) {
      CHECK(Client::connect(service.address(), guess).status().code() ==
            StatusCode::kPermissionDenied);
    }
  };
  const auto ctl = [&](const std::string& timeout) {
    return service.ctl({"status", "--tenant", "red", "--token", "first", "--timeout", timeout});
  };
  use_up();
  const Status waits = Client::connect(service.address(), guess).status();
  CHECK(waits.code() == StatusCode::kPermissionDenied);
  CHECK(waits.retry_after_ms() > 0);
  const Ran told = ctl("700ms");
  CHECK(told.exit_code == 5);
  CHECK_THAT(told.err, Contains("a client at this address used a wrong token") &&
                           Contains("audit log") && !Contains("busy"));
  CHECK(ctl("10s").exit_code == 0);  // after the delay
  use_up();
  service.write_config("[[tenant]]\nname = \"red\"\ntoken = \"zebra\"\n");
  service.reload();
  ConnectOptions anew = guess;
  anew.token = "zebra";
  CHECK(Client::connect(service.address(), anew).status() == Status());
}

TEST_CASE("the log says at the start what guards the service", "[integration]") {
  const TempDir dir;
  const std::string socket = dir.path("a.sock"), audit = dir.path("audit");
  const OperatedService guarded(dir, std::string() + "listen_unix = \"" + socket +
                                         "\"\naudit_log = \"" + audit + "\"\n" + kRed);
  CHECK_THAT(guarded.log(), Contains(" serving ") && Contains(" tls=off unix=" + socket +
                                                              " tenants=1 audit_log=" + audit));
}

}  // namespace
