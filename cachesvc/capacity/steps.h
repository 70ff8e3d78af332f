// Chooses what to give up when stored segments take too much space. Pure: the same candidates give
// the same steps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cachesvc/base/capacity_settings.h"
#include "cachesvc/capacity/worth.h"

namespace precis {

// The marks of a limit, as shares of it: above the high one, stored bytes are freed down to the low
// one.
inline constexpr double kHighMark = 0.95, kLowMark = 0.90;

// A stored segment. Candidates are given with parents before children.
struct Candidate {
  std::optional<std::uint32_t> parent;  // index among the candidates
  std::uint32_t owner = 0;              // the number of its tenant, from 0; also its parent's
  std::uint64_t stored_bytes = 0;
  std::uint64_t entries = 0, full_entries = 0;  // kept, and without compression
  double visible_share = 1;                     // of full_entries, that later queries see
  std::uint64_t least_entries = 0;              // that any trim leaves, by its recipe
  std::uint64_t entry_bytes = 0;                // that a trim frees for each entry
  double prefill_seconds = 0;                   // that a hit saves, by the service's estimate
  double said_seconds = 0;                      // by its client; 0: it said none
  Use use;
  bool held = false;      // neither trimmed nor dropped, as a pinned session needs it
  bool trimmable = true;  // false: may be dropped, but not read and cut
};

// One change of one candidate.
struct CapacityStep {
  std::uint32_t candidate = 0;  // index
  double keep = 0;              // the share of full_entries that is left; 0: the segment is dropped
  std::uint64_t freed_bytes = 0;
  bool operator==(const CapacityStep&) const = default;
};

// `ladder`: the shares of its entries that a trim may leave a segment, as check_trim_ladder()
// requires. Returns the steps that free at least `bytes_to_free`, or as much as the held segments
// allow. Only leaves are dropped, so a segment is dropped after its children. A candidate has at
// most one step, its last; steps are in an order in which they can be carried out. O(n log n).
//
// Hints and said_seconds compare the segments of one owner. They decide which segments it gives up,
// and add at most one step to the bytes that it gives up.
std::vector<CapacityStep> choose_steps(std::span<const Candidate> candidates,
                                       std::span<const double> ladder, CapacityPolicy policy,
                                       std::uint64_t bytes_to_free);

}  // namespace precis
