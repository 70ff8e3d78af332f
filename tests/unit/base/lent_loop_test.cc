// A lent loop: threads that wait for something on the loop may drive it.
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "cachesvc/base/asio_loop.h"

namespace precis {
namespace {

// Longer than any operation takes on the slowest machine; only a failing test reaches it.
constexpr std::chrono::seconds kPatience{60};

class LentLoop {
 public:
  LentLoop() : thread_([this] { loop.run_lent(); }) {}
  ~LentLoop() {
    loop.stop();
    thread_.join();
  }
  // Lends the loop out: tells it that nothing is expected.
  void let_go() {
    std::promise<void> said;
    loop.post([&] {
      loop.rest();
      said.set_value();
    });
    REQUIRE(said.get_future().wait_for(kPatience) == std::future_status::ready);
  }
  // Runs `begin` and drives the loop for one turn, as soon as the loop is free.
  void drive_some(const std::function<void()>& begin) {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (!loop.drive(begin, [] { return true; })) {
      REQUIRE(std::chrono::steady_clock::now() < give_up);
      let_go();
    }
  }
  std::thread::id own_thread() const { return thread_.get_id(); }

  AsioLoop loop;

 private:
  std::thread thread_;
};

TEST_CASE("a loop that is not lent is driven by nobody else", "[base]") {
  AsioLoop loop;
  std::thread thread([&] { loop.run(); });
  bool began = false;
  std::promise<void> said;
  loop.post([&] {
    loop.rest();
    said.set_value();
  });
  said.get_future().wait();
  CHECK_FALSE(loop.drive([&] { began = true; }, [] { return true; }));
  CHECK_FALSE(began);
  loop.stop();
  thread.join();
}

TEST_CASE("who drives a lent loop runs its handlers, and is its thread meanwhile", "[base]") {
  LentLoop lent;
  std::thread::id began, ran;
  bool on_loop = false, done = false;
  const auto begin = [&] {
    began = std::this_thread::get_id();
    on_loop = lent.loop.on_loop_thread();
    lent.loop.post([&] {
      ran = std::this_thread::get_id();
      done = true;
      lent.loop.rest();
    });
  };
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!lent.loop.drive(begin, [&] { return done; })) {
    REQUIRE(std::chrono::steady_clock::now() < give_up);
    lent.let_go();
  }
  CHECK(began == std::this_thread::get_id());
  CHECK(ran == std::this_thread::get_id());
  CHECK(on_loop);
  CHECK_FALSE(lent.loop.on_loop_thread());
}

TEST_CASE("what is posted to a lent loop that nobody drives is done by its own thread", "[base]") {
  LentLoop lent;
  for (int i = 0; i < 200; ++i) {
    lent.drive_some([&] { lent.loop.rest(); });
    std::promise<std::thread::id> ran;
    lent.loop.post([&] { ran.set_value(std::this_thread::get_id()); });
    auto future = ran.get_future();
    REQUIRE(future.wait_for(kPatience) == std::future_status::ready);
    CHECK(future.get() == lent.own_thread());
  }
}

TEST_CASE("what is expected still when a driver leaves is the own thread's to wait for", "[base]") {
  LentLoop lent;
  std::promise<std::thread::id> fired;
  std::unique_ptr<EventLoop::Timer> timer;
  lent.drive_some([&] {
    timer = lent.loop.after(std::chrono::milliseconds(1),
                            [&] { fired.set_value(std::this_thread::get_id()); });
    lent.loop.expect();
  });
  auto future = fired.get_future();
  REQUIRE(future.wait_for(kPatience) == std::future_status::ready);
  CHECK(future.get() == lent.own_thread());
  lent.drive_some([&] { timer.reset(); });
}

TEST_CASE("a lent loop that is left alone with something to come goes on by itself", "[base]") {
  LentLoop lent;
  std::promise<void> fired;
  std::unique_ptr<EventLoop::Timer> timer;
  lent.drive_some([&] {
    timer = lent.loop.after(std::chrono::milliseconds(1), [&] { fired.set_value(); });
    lent.loop.rest();
  });
  REQUIRE(fired.get_future().wait_for(kPatience) == std::future_status::ready);
  lent.drive_some([&] { timer.reset(); });
}

TEST_CASE("threads that wait on a lent loop drive it in turn, and none waits in vain", "[base]") {
  LentLoop lent;
  constexpr int kThreads = 4, kCalls = 2000;
  int under_way = 0;  // used only by the thread that drives the loop
  std::atomic<int> driven{0}, answered{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < kThreads; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < kCalls; ++i) {
        // The answer comes two turns after the request.
        bool there = false;  // written on the loop, read by this thread if it drives
        std::promise<void> answer;
        const std::function<void()> ask = [&] {
          ++under_way;
          lent.loop.expect();
          lent.loop.post([&] {
            lent.loop.post([&] {
              if (--under_way == 0) lent.loop.rest();
              there = true;
              answer.set_value();
            });
          });
        };
        if (lent.loop.drive(ask, [&] { return there; })) {
          ++driven;
        } else {
          lent.loop.post(ask);
        }
        if (answer.get_future().wait_for(kPatience) == std::future_status::ready) ++answered;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK(answered == kThreads * kCalls);
  CHECK(driven > 0);
}

}  // namespace
}  // namespace precis
