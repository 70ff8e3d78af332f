#include "cachesvc/pipeline/score_curve.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

namespace {

using namespace precis;

constexpr float kProtected = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("a curve tells how many entries have at least a score", "[unit][pipeline]") {
  std::mt19937 random(20261127);
  std::lognormal_distribution<float> lognormal(0, 2);
  std::vector<float> scores(5000);
  for (float& score : scores) score = GENERATE(-1.0f, 1.0f) * lognormal(random);
  const ScoreCurve curve(scores, scores.size());
  for (const float score : {-100.0f, -3.0f, -0.5f, 0.1f, 1.0f, 7.0f, 1e6f}) {
    CAPTURE(score);
    const auto exact = std::ranges::count_if(scores, [&](float each) { return each >= score; });
    CHECK(std::abs(static_cast<double>(curve.at_least(score)) - static_cast<double>(exact)) <
          static_cast<double>(scores.size()) / 32);
  }
  const auto [lowest, highest] = std::ranges::minmax(scores);
  CHECK(curve.at_least(lowest) == scores.size());
  CHECK(curve.at_least(std::nextafter(highest, kProtected)) == 0);
}

TEST_CASE("protected entries are counted at every score, and a sample stands for all",
          "[unit][pipeline]") {
  const ScoreCurve curve({kProtected, 1, 2, 3}, 400);
  CHECK(curve.entries() == 400);
  CHECK(curve.at_least(10) == 100);
  CHECK(curve.at_least(2) == 250);
  CHECK(curve.at_least(-1) == 400);
  CHECK(ScoreCurve({kProtected, kProtected}, 2).at_least(1e30f) == 2);
  CHECK(ScoreCurve({}, 7).at_least(0) == 7);
  CHECK(ScoreCurve({5, 5, 5, 5}, 4).at_least(5) == 4);
  CHECK(ScoreCurve({5, 5, 5, 5}, 4).at_least(6) == 0);
}

TEST_CASE("the curve of several segments counts as their curves do", "[unit][pipeline]") {
  const ScoreCurve high({kProtected, 4, 5, 6}, 400), low({1, 2, 3}, 1200), same({7, 7}, 40);
  const std::vector<const ScoreCurve*> all{&high, &low, &same};
  const ScoreCurve together = ScoreCurve::together(all);
  CHECK(together.entries() == 1640);
  for (const float score : {-1.0f, 1.5f, 2.0f, 3.5f, 5.0f, 7.0f, 9.0f}) {
    CAPTURE(score);
    const auto sum = high.at_least(score) + low.at_least(score) + same.at_least(score);
    CHECK(static_cast<double>(together.at_least(score)) ==
          Approx(static_cast<double>(sum)).margin(1640.0 / 32));
  }
  CHECK(ScoreCurve::together(std::vector<const ScoreCurve*>{&high}).at_least(5) ==
        Approx(high.at_least(5)).margin(10));
}
