// Times many requests, one after another.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "precis/status.h"
#include "tests/bench/service/stage.h"

namespace precis::bench {

// Seconds of each of `count` calls of body(), which returns a Status.
template <typename Body>
Result<std::vector<double>> timed(std::size_t count, const Body& body) {
  std::vector<double> seconds;
  for (std::size_t i = 0; i < count; ++i) {
    const auto began = std::chrono::steady_clock::now();
    PRECIS_TRY(body());
    seconds.push_back(seconds_since(began));
  }
  return seconds;
}

}  // namespace precis::bench
