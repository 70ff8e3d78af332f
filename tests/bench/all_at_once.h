// Threads that begin together, timed.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <latch>
#include <thread>
#include <vector>

namespace precis::bench {

// Runs body(i), i < count, in a thread each, once all of them are there; seconds from the first
// one's begin to the last one's end. By their own clocks: who started them may be woken late.
template <typename Body>
double all_at_once(std::size_t count, const Body& body) {
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> began(count), ended(count);
  {
    std::latch ready(static_cast<std::ptrdiff_t>(count));
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        ready.arrive_and_wait();
        began[i] = Clock::now();
        body(i);
        ended[i] = Clock::now();
      });
    }
  }
  return std::chrono::duration<double>(std::ranges::max(ended) - std::ranges::min(began)).count();
}

}  // namespace precis::bench
