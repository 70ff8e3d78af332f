// The libraries that set the clocks of nodes must leave timers alone, or the torture of clusters
// would itself make nodes stand still. CMake runs this test with these libraries and a clock that
// is an hour ahead.
#include <poll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "tests/catch_runner.h"

namespace precis::torture {
namespace {

constexpr int kPatienceMs = 30'000;

TEST_CASE("a timer that is due at once fires while the wall clock is wrong") {
  timespec true_time{};
  REQUIRE(::syscall(SYS_clock_gettime, CLOCK_REALTIME, &true_time) == 0);
  REQUIRE(::time(nullptr) - true_time.tv_sec > 59 * 60);

  const int timer = ::timerfd_create(CLOCK_MONOTONIC, 0);
  const itimerspec long_ago{{}, {0, 1}};
  REQUIRE(::timerfd_settime(timer, TFD_TIMER_ABSTIME, &long_ago, nullptr) == 0);
  pollfd fires{timer, POLLIN, 0};
  CHECK(::poll(&fires, 1, kPatienceMs) == 1);
  ::close(timer);
}

}  // namespace
}  // namespace precis::torture

int main(int argc, char** argv) {
  if (!std::filesystem::exists(FAKETIME_PATH)) {
    std::puts("skipped, because the Debian package libfaketime is missing");
    return 77;
  }
  return precis::testing::run_test_cases(argc, argv);
}
