// Distributions of durations in seconds, for monitoring. One thread, the loop's, observes and
// reads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace precis {

class Histogram {
 public:
  // Upper bounds of the buckets in seconds. A last bucket counts everything above.
  static constexpr std::array<double, 18> kBounds = {1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3,
                                                     0.01, 0.025,  0.05, 0.1,  0.25,   0.5,
                                                     1,    2.5,    5,    10,   30,     60};

  void observe(double seconds) {
    const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
    ++counts_[static_cast<std::size_t>(bucket - kBounds.begin())];
    sum_ += seconds;
  }

  // How many observations each bucket has; not cumulative.
  const std::array<std::uint64_t, kBounds.size() + 1>& counts() const { return counts_; }
  double sum() const { return sum_; }
  bool operator==(const Histogram&) const = default;

 private:
  std::array<std::uint64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

}  // namespace precis
