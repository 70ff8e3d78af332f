#include "cachesvc/base/histogram.h"

#include <catch2/catch.hpp>
#include <numeric>

namespace precis {
namespace {

std::uint64_t total(const Histogram& histogram) {
  return std::accumulate(histogram.counts().begin(), histogram.counts().end(), std::uint64_t{0});
}

TEST_CASE("a duration is counted in the first bucket whose bound it does not exceed",
          "[unit][base]") {
  Histogram histogram;
  histogram.observe(0);
  histogram.observe(1e-4);
  histogram.observe(1.5e-4);
  histogram.observe(60);
  histogram.observe(61);
  CHECK(histogram.counts().front() == 2);
  CHECK(histogram.counts()[1] == 1);
  CHECK(histogram.counts()[Histogram::kBounds.size() - 1] == 1);
  CHECK(histogram.counts().back() == 1);
  CHECK(total(histogram) == 5);
  CHECK(histogram.sum() == Approx(121.00025));
}

}  // namespace
}  // namespace precis
