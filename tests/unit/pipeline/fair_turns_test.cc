#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "cachesvc/pipeline/fair_turns.h"

namespace precis {
namespace {

TEST_CASE("who asks for many turns on the loop waits for those who ask for few",
          "[unit][pipeline]") {
  EventLoop loop;
  FairTurns turns(loop);
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
  EventLoop loop;
  FairTurns turns(loop);
  int done = 0, done_when_posted = -1;
  const auto spend_two_milliseconds = [] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < until) {}
  };
  for (int i = 0; i < 5; ++i) {
    turns.ask({}, [&] {
      spend_two_milliseconds();
      if (++done == 1) loop.post([&] { done_when_posted = done; });
      if (done == 5) loop.stop();
    });
  }
  loop.run();
  CHECK(done == 5);
  CHECK(done_when_posted < 5);
}

TEST_CASE("turns that were asked for go with their queue", "[unit][pipeline]") {
  EventLoop loop;
  bool called = false;
  {
    FairTurns turns(loop);
    turns.ask({}, [&] { called = true; });
  }
  loop.post([&] { loop.stop(); });
  loop.run();
  CHECK_FALSE(called);
}

}  // namespace
}  // namespace precis
