#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "cachesvc/base/asio_loop.h"
#include "cachesvc/pipeline/fair_turns.h"

namespace precis {
namespace {

class ManualClock final : public Clock {
 public:
  std::uint64_t unix_ms() const override { return 0; }
  std::uint64_t monotonic_ns() const override { return now_ns; }
  std::uint64_t now_ns = 1;
};

TEST_CASE("who asks for many turns on the loop waits for those who ask for few",
          "[unit][pipeline]") {
  AsioLoop loop;
  ManualClock clock;
  FairTurns turns(loop, clock);
  std::string order;
  const int connections[3] = {};
  for (int i = 0; i < 6; ++i) {
    turns.ask({"a", 1, &connections[i % 2]}, [&] { order += 'a'; });
  }
  turns.ask({"b", 1, &connections[2]}, [&] { order += 'b'; });
  turns.ask({"b", 1, &connections[2]}, [&] {
    order += 'b';
    turns.ask({"b", 1, &connections[2]}, [&] { order += 'B'; });
  });
  loop.post([&] { loop.post([&] { loop.post([&] { loop.stop(); }); }); });
  loop.run();
  CHECK(order == "ababaBaaa");
}

TEST_CASE("long turns leave the loop to others in between", "[unit][pipeline]") {
  AsioLoop loop;
  ManualClock clock;
  FairTurns turns(loop, clock);
  int done = 0, done_when_posted = -1;
  for (int i = 0; i < 5; ++i) {
    turns.ask({}, [&] {
      clock.now_ns += 2'000'000;
      if (++done == 1) loop.post([&] { done_when_posted = done; });
      if (done == 5) loop.stop();
    });
  }
  loop.run();
  CHECK(done == 5);
  CHECK(done_when_posted < 5);
}

TEST_CASE("while others ask, a tenant's turn is followed by a pause of four times its length",
          "[unit][pipeline]") {
  AsioLoop loop;
  ManualClock clock;
  FairTurns turns(loop, clock);
  const int connections[2] = {};
  std::string order;
  turns.ask({"a", 1, &connections[0]}, [&] {
    order += 'a';
    clock.now_ns += 1'000'000;
    turns.ask({"b", 1, &connections[1]}, [&] { order += 'b'; });
    for (int i = 0; i < 2; ++i) {
      turns.ask({"a", 1, &connections[0]}, [&] {
        order += 'a';
        if (order.size() == 5) loop.stop();
      });
    }
  });
  // The loop's timer uses real time and fires before the test's clock has moved, so the pause
  // continues.
  const auto early = loop.after(std::chrono::milliseconds(20), [&] {
    order += '|';
    clock.now_ns += 4'000'000;
  });
  loop.run();
  CHECK(order == "ab|aa");
}

TEST_CASE("a tenant that is alone goes on without a pause", "[unit][pipeline]") {
  AsioLoop loop;
  ManualClock clock;
  FairTurns turns(loop, clock);
  int done = 0;
  std::function<void()> turn = [&] {
    clock.now_ns += 1'000'000;
    if (++done == 5) return loop.stop();
    turns.ask({"a", 1, nullptr}, turn);
  };
  turns.ask({"a", 1, nullptr}, turn);
  loop.run();
  CHECK(done == 5);
}

TEST_CASE("turns that were asked for go with their queue", "[unit][pipeline]") {
  AsioLoop loop;
  ManualClock clock;
  bool called = false;
  {
    FairTurns turns(loop, clock);
    turns.ask({}, [&] { called = true; });
  }
  loop.post([&] { loop.stop(); });
  loop.run();
  CHECK_FALSE(called);
}

}  // namespace
}  // namespace precis
