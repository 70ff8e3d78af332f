#include "cachesvc/store/compactor.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <thread>

#include "cachesvc/base/thread_executor.h"

namespace precis {
namespace {

TEST_CASE("a compactor passes when it starts and when it is woken, and not after its stop",
          "[store]") {
  const SystemClock clock;
  Compactor compactor(std::make_unique<ThreadExecutor>("compactor", 1), clock,
                      std::chrono::hours(1));
  std::atomic<int> calls{0};
  compactor.start([&](const std::stop_token&) {
    ++calls;
    return false;
  });
  while (compactor.passes() < 1) std::this_thread::yield();
  compactor.wake(/*failed=*/true);
  while (compactor.passes() < 2) std::this_thread::yield();
  compactor.space_available();
  compactor.wake(/*failed=*/false);  // waits for an hour, unless it is stopped
  compactor.stop();
  const int before = calls;
  compactor.wake(/*failed=*/true);
  CHECK(calls == before);
}

}  // namespace
}  // namespace precis
