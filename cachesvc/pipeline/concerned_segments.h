// The stored segments that changes of budgets concern: those that store more than a put would get
// after the changes.
//
// A segment of a session that sets a budget of its own has that session's budget, unless it is on
// another path, too. Every other segment has the budget of its model. Reads only rows.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/catalog/catalog.h"

namespace precis {

// Changes that are made already, or not.
struct BudgetsToApply {
  std::vector<msg::BudgetChange> changes;
  bool smaller_only = false;  // only segments of which a put gets less than before the changes
  bool to_limit = false;      // to the limits that the changes set, instead of the keeps
  // Only segments that were stored by then, by the clock of the node that stored them.
  std::uint64_t stored_by_ms = std::numeric_limits<std::uint64_t>::max();
};

struct ConcernedSegments {
  struct Segment {
    SegmentId id;
    Budget keep;
    std::uint64_t stored_bytes = 0;
  };
  std::vector<Segment> segments;  // parents before children
  // The names of models, and sessions, whose segments stay as they are: their new budget is a
  // loss, which no trim can have; or they set a keep (or limit) of their own.
  std::vector<std::string> loss, apart;
};

// Returns a piece of work that looks at some rows whenever it is called, and returns false once it
// has set `result`. One of the calls lists all segments. kInvalidArgument for a budget that no
// segment can have. The arguments must outlive it.
std::function<bool()> concerned_by(const Catalog& catalog, std::string_view tenant,
                                   const BudgetDefaults& configured, const BudgetsToApply& request,
                                   std::optional<Result<ConcernedSegments>>& result);

}  // namespace precis
