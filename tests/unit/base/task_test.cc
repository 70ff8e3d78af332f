// Coroutines wait for executors and callbacks and resume on the loop's thread.
#include "cachesvc/base/task.h"
#include "cachesvc/base/asio_loop.h"
#include "cachesvc/base/thread_executor.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace precis {
namespace {

Task<int> add_on(Executor& executor, EventLoop& loop, int a, int b) {
  co_return co_await run_on(executor, loop, [=] { return a + b; });
}

Task<std::string> sum_text(Executor& executor, EventLoop& loop, std::vector<std::string>& threads) {
  const auto note = [&](const char* where) {
    threads.push_back(std::string(where) + (loop.on_loop_thread() ? " on loop" : " elsewhere"));
  };
  note("start");
  int sum = 0;
  for (int i = 0; i < 3; ++i) sum += co_await add_on(executor, loop, i, 10);
  note("after");
  co_return std::to_string(sum);
}

}  // namespace

TEST_CASE("a task comes back to the loop after work elsewhere", "[unit][base]") {
  AsioLoop loop;
  ThreadExecutor executor("test", 2);
  std::vector<std::string> threads;
  std::string text;
  auto top = [&]() -> Task<void> {
    text = co_await sum_text(executor, loop, threads);
    loop.stop();
  };
  loop.post([&] { spawn(top()); });
  loop.run();
  CHECK(text == "33");
  CHECK(threads == std::vector<std::string>{"start on loop", "after on loop"});
}

TEST_CASE("a callback's value is what the awaiting task gets", "[unit][base]") {
  std::function<void(std::unique_ptr<int>)> pending;
  int got = 0;
  auto top = [&]() -> Task<void> {
    auto value = co_await completion<std::unique_ptr<int>>(
        [&](std::function<void(std::unique_ptr<int>)> done) { pending = std::move(done); });
    got = *value;
  };
  spawn(top());
  REQUIRE(pending);
  CHECK(got == 0);
  pending(std::make_unique<int>(42));
  CHECK(got == 42);
}

TEST_CASE("a task's frame is freed whether or not it was started", "[unit][base]") {
  auto alive = std::make_shared<int>(0);
  auto hold = [](std::shared_ptr<int> held) -> Task<void> {
    ++*held;
    co_return;
  };
  { const auto never_started = hold(alive); }
  CHECK(*alive == 0);
  spawn(hold(alive));
  CHECK(*alive == 1);
  CHECK(alive.use_count() == 1);
}

TEST_CASE("an early return leaves with its status", "[unit][base]") {
  auto failing = [](Status status) -> Task<Status> {
    PRECIS_CO_TRY(status);
    co_return Status::internal("went on");
  };
  Status got;
  auto top = [&]() -> Task<void> { got = co_await failing(Status::rejected("full")); };
  spawn(top());
  CHECK(got == Status::rejected("full"));
}

TEST_CASE("a started task runs beside its maker, whoever of them is done first", "[unit][base]") {
  const bool awaited_first = GENERATE(false, true);
  CAPTURE(awaited_first);
  std::function<void(std::unique_ptr<int>)> pending;
  const auto body = [&]() -> Task<std::unique_ptr<int>> {
    co_return co_await completion<std::unique_ptr<int>>(
        [&](std::function<void(std::unique_ptr<int>)> done) { pending = std::move(done); });
  };
  Started<std::unique_ptr<int>> started(body());
  REQUIRE(pending != nullptr);  // it has started already
  int got = 0;
  const auto top = [&]() -> Task<void> { got = *co_await started; };
  if (awaited_first) {
    spawn(top());
    CHECK(got == 0);
    pending(std::make_unique<int>(7));
  } else {
    pending(std::make_unique<int>(7));
    spawn(top());
  }
  CHECK(got == 7);
}

}  // namespace precis
