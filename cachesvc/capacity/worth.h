// The worth of a stored segment: the prefill that it is expected to save, and how much of that a
// trim would give up. Pure arithmetic; docs/design/capacity.md has the reasons.
#pragma once

#include <cstdint>

#include "precis/hint_limits.h"

namespace precis {

// How a segment was used so far, and what its users said about its future.
struct Use {
  std::uint64_t hits = 0;   // gets and lookups that found it
  double age_s = 0;         // since it was stored
  double idle_s = 0;        // since it was last found, or stored
  bool in_session = false;  // the tip of a live session, or an ancestor of one
  // Hints.
  std::uint32_t priority = limits::kPriorityUsual;  // 0 to limits::kPriorityMax
  double ttl_s = 0;                                 // 0: none
  bool expected = false;                            // about to be used
};

// How often the segment is expected to be found, in hits per second: the inverse of the mean time
// between its hits so far plus its idle time. A new segment counts as found once, and one that is
// expected counts as found now. Idle time beyond the TTL halves the rate for each TTL, and 10
// points of priority double it. Always above 0.
double reuse_rate(const Use& use);

// The same use without hints.
Use without_hints(const Use& use);

// The seconds of prefill that a hit saves, to compare the segments of one tenant: those that the
// client said, but not further from the estimate than priority takes a segment from the usual one.
// The estimate, if it said none (0).
double prefill_worth(double said_s, double estimate_s);

// The share of a hit's worth that is left if a segment keeps this share of its entries: 1 for all
// of them, 0 for none. A concave function, so segments are trimmed before they are dropped.
double quality_worth(double keep);

}  // namespace precis
