#include "cachesvc/capacity/worth.h"

#include <algorithm>
#include <cmath>

namespace precis {
namespace {

// A segment that was just stored must not count as used every instant.
constexpr double kSettleSeconds = 60;
// A session that lives is likely to go on. One that was idle for long is likely to be over, also if
// nobody has removed it.
constexpr double kSessionFactor = 4, kSessionIdleSeconds = 3600;
constexpr double kPointsToDouble = 10;
// Bounds the decay, so that old segments still differ.
constexpr double kHalvingsMax = 60;
// keep^kConcavity: a segment cut to a third keeps 90% of its worth, cut to a tenth 79%.
constexpr double kConcavity = 0.1;

}  // namespace

double reuse_rate(const Use& use) {
  const double mean_gap_s = (use.age_s + kSettleSeconds) / (static_cast<double>(use.hits) + 1);
  double doublings = (static_cast<double>(use.priority) - limits::kPriorityUsual) / kPointsToDouble;
  double gap_s = mean_gap_s + use.idle_s;
  if (use.expected) {
    gap_s = std::min(mean_gap_s, kSettleSeconds);
  } else if (use.ttl_s > 0 && use.idle_s > use.ttl_s) {
    doublings -= std::min(use.idle_s / use.ttl_s - 1, kHalvingsMax);
  }
  const double rate = std::exp2(doublings) / gap_s;
  const bool goes_on = use.in_session && use.idle_s < kSessionIdleSeconds;
  return goes_on ? rate * kSessionFactor : rate;
}

Use without_hints(const Use& use) { return {use.hits, use.age_s, use.idle_s, use.in_session}; }

double prefill_worth(double said_s, double estimate_s) {
  if (said_s == 0) return estimate_s;
  const double most = std::exp2(limits::kPriorityUsual / kPointsToDouble);
  return std::clamp(said_s, estimate_s / most, estimate_s * most);
}

double quality_worth(double keep) {
  return keep <= 0 ? 0 : std::pow(std::min(keep, 1.0), kConcavity);
}

}  // namespace precis
