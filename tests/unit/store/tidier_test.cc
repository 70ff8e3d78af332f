#include "cachesvc/store/tidier.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <thread>

#include "cachesvc/base/thread_executor.h"

namespace precis {
namespace {

TEST_CASE("a tidier passes when it starts and when it is woken, and not after its stop",
          "[store]") {
  const SystemClock clock;
  Tidier tidier(std::make_unique<ThreadExecutor>("tidier", 1), clock, std::chrono::hours(1));
  std::atomic<int> calls{0};
  tidier.start([&](const std::stop_token&) {
    ++calls;
    return false;
  });
  while (tidier.passes() < 1) std::this_thread::yield();
  tidier.wake(/*failed=*/true);
  while (tidier.passes() < 2) std::this_thread::yield();
  tidier.there_is_room();
  tidier.wake(/*failed=*/false);  // waits for an hour, unless it is stopped
  tidier.stop();
  const int before = calls;
  tidier.wake(/*failed=*/true);
  CHECK(calls == before);
}

}  // namespace
}  // namespace precis
