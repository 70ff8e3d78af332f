// Times threads that start together.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <latch>
#include <thread>
#include <vector>

namespace precis::bench {

// Runs body(i) for each i < count in its own thread, once all threads have started. Returns the
// seconds from the first thread's start to the last thread's end, by the threads' own clocks: the
// caller may be woken late.
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
