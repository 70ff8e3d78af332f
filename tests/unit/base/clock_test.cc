#include "cachesvc/base/clock.h"

#include <catch2/catch.hpp>
#include <ctime>

using namespace precis;

TEST_CASE("the system clock's wall time is the machine's, in milliseconds", "[unit][base]") {
  const SystemClock clock;
  const auto before = static_cast<std::uint64_t>(std::time(nullptr));
  const std::uint64_t now = clock.unix_ms();
  const auto after = static_cast<std::uint64_t>(std::time(nullptr));
  CHECK(now / 1000 + 1 >= before);  // time() may lag by a tick
  CHECK(now / 1000 <= after + 1);
}

TEST_CASE("the system clock's monotonic time does not go back", "[unit][base]") {
  const SystemClock clock;
  std::uint64_t last = clock.monotonic_ns();
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t now = clock.monotonic_ns();
    REQUIRE(now >= last);
    last = now;
  }
}
