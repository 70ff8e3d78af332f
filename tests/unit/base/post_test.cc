// Functions posted to a loop run on it: from any thread, in order, also while the loop sleeps.
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "cachesvc/base/asio_loop.h"

namespace precis {

TEST_CASE("a loop that sleeps again and again misses nothing of what threads post, in their order",
          "[unit][base]") {
  constexpr int kThreads = 4, kPosts = 3000;
  AsioLoop loop;
  std::vector<int> next(kThreads, 0);
  int ran = 0;
  bool in_order = true;
  std::vector<std::thread> posters;
  for (int t = 0; t < kThreads; ++t) {
    posters.emplace_back([&, t] {
      std::minstd_rand random(t + 1);
      for (int i = 0; i < kPosts; ++i) {
        loop.post([&, t, i] {
          in_order = in_order && next[t]++ == i;
          if (++ran == kThreads * kPosts) loop.stop();
        });
        // Some pauses are long enough for the loop to fall asleep.
        if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }
  loop.run();
  for (std::thread& poster : posters) poster.join();
  CHECK(ran == kThreads * kPosts);
  CHECK(in_order);
}

TEST_CASE("what handlers post runs after them, and what was posted before stop runs too",
          "[unit][base]") {
  AsioLoop loop;
  std::vector<int> order;
  loop.post([&] {
    order.push_back(1);
    loop.post([&] {
      order.push_back(3);
      loop.stop();
      loop.post([&] { order.push_back(4); });
    });
  });
  loop.post([&] { order.push_back(2); });
  loop.run();
  CHECK(order.size() >= 3);
  order.resize(3);
  CHECK(order == std::vector{1, 2, 3});
}

TEST_CASE("what was never run goes with the loop, and what its going posts", "[unit][base]") {
  struct PostsWhenGone {
    EventLoop& loop;
    std::shared_ptr<int> held;
    ~PostsWhenGone() {
      loop.post([held = std::move(held)] {});
    }
  };
  const auto held = std::make_shared<int>(0);
  {
    AsioLoop loop;
    const auto last = std::make_shared<PostsWhenGone>(PostsWhenGone{loop, held});
    loop.post([last] {});
  }
  CHECK(held.use_count() == 1);
}

}  // namespace precis
