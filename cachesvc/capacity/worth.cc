#include "cachesvc/capacity/worth.h"

#include <algorithm>
#include <cmath>

namespace precis {
namespace {

// A segment that was just stored must not count as used every instant.
constexpr double kSettleSeconds = 60;
constexpr double kSessionFactor = 4;  // a session that lives is likely to go on
// keep^kConcavity: a segment cut to a third keeps 90% of its worth, cut to a tenth 79%.
constexpr double kConcavity = 0.1;

}  // namespace

double reuse_rate(const Use& use) {
  const double mean_gap_s = (use.age_s + kSettleSeconds) / (static_cast<double>(use.hits) + 1);
  const double rate = 1 / (mean_gap_s + use.idle_s);
  return use.in_session ? rate * kSessionFactor : rate;
}

double quality_worth(double keep) {
  return keep <= 0 ? 0 : std::pow(std::min(keep, 1.0), kConcavity);
}

}  // namespace precis
