// The executor: order, parallelism, draining. Threads synchronize on latches; nothing sleeps.
#include "cachesvc/base/thread_executor.h"

#include <pthread.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

using namespace precis;

TEST_CASE("an executor runs everything posted before it is destroyed", "[unit][base]") {
  std::atomic<int> ran{0};
  {
    ThreadExecutor executor("test", 3);
    for (int i = 0; i < 1000; ++i) executor.post([&] { ++ran; });
  }
  CHECK(ran == 1000);
}

TEST_CASE("one thread runs work first in first out", "[unit][base]") {
  std::vector<int> order;
  {
    ThreadExecutor executor("test", 1);
    for (int i = 0; i < 100; ++i) executor.post([&order, i] { order.push_back(i); });
  }
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(order == expected);
}

TEST_CASE("as many pieces of work run at once as there are threads", "[unit][base]") {
  constexpr int kThreads = 4;
  std::latch all_running(kThreads);
  {
    ThreadExecutor executor("test", kThreads);
    for (int i = 0; i < kThreads; ++i) executor.post([&] { all_running.arrive_and_wait(); });
  }  // hangs if fewer threads run at the same time
  CHECK(all_running.try_wait());
}

TEST_CASE("work posted by work runs too, also while the executor is being destroyed",
          "[unit][base]") {
  std::atomic<int> ran{0};
  {
    ThreadExecutor executor("test", 2);
    executor.post([&] {
      ++ran;
      executor.post([&] {
        ++ran;
        executor.post([&] { ++ran; });
      });
    });
  }
  CHECK(ran == 3);
}

TEST_CASE("queued counts what waits and not what runs", "[unit][base]") {
  ThreadExecutor executor("test", 1);
  std::latch running(1), go_on(1), done(1);
  executor.post([&] {
    running.count_down();
    go_on.wait();
  });
  running.wait();
  CHECK(executor.queued() == 0);
  executor.post([] {});
  executor.post([&] { done.count_down(); });
  CHECK(executor.queued() == 2);
  go_on.count_down();
  done.wait();
  CHECK(executor.queued() == 0);
}

TEST_CASE("threads carry the executor's name, cut to what the machine takes", "[unit][base]") {
  std::string name(32, '\0');
  {
    ThreadExecutor executor("a-rather-long-executor-name", 1);
    executor.post([&] { pthread_getname_np(pthread_self(), name.data(), name.size()); });
  }
  CHECK(std::string(name.c_str()) == "a-rather-long-0");
}

TEST_CASE("what a piece of work owns is released once it has run", "[unit][base]") {
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owned;
  ThreadExecutor executor("test", 1);
  std::latch later(1);
  executor.post([owned = std::move(owned)] {});
  executor.post([&] { later.count_down(); });
  later.wait();
  CHECK(watch.expired());
}
