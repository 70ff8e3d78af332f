// Measures every figure of this benchmark.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace precis::bench {

struct Seconds {
  double median = 0, min = 0, max = 0;
  std::size_t runs = 0;
};

// Runs fn(i), i = 0, 1, ..., once to warm up and then until it has run `runs_min` times and
// `seconds_min` have passed.
template <typename Fn>
Seconds measure(std::size_t runs_min, double seconds_min, const Fn& fn) {
  using Clock = std::chrono::steady_clock;
  std::size_t at = 0;
  fn(at++);
  std::vector<double> times;
  for (double total = 0; times.size() < runs_min || total < seconds_min; total += times.back()) {
    const auto began = Clock::now();
    fn(at++);
    times.push_back(std::chrono::duration<double>(Clock::now() - began).count());
  }
  std::ranges::sort(times);
  return {times[times.size() / 2], times.front(), times.back(), times.size()};
}

}  // namespace precis::bench
